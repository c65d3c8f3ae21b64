"""Keys of Apache's brokers that change nothing here, by the reason why, with Apache's defaults.

All keys that brokers of 4.9.7 and 5.5.0 show are settings of ours or are in this table, so that a
file of theirs is taken without complaint. Where the two releases differ the default is 5.5.0's.
"""

from collections.abc import Mapping
from types import MappingProxyType

from cometmq.remoting.config import NO_NETTY, NO_POOLS, NO_SEMAPHORE, SYSTEM_BUFFERS
from cometmq.settings import InertKey

_SECRETS = ("metricsGrpcExporterHeader", "socksProxyConfig")
"""May hold passwords."""

_KEYS_BY_REASON = {
    NO_POOLS: """
        adminBrokerThreadPoolNums=16 adminBrokerThreadPoolQueueCapacity=10000
        asyncSendEnable=true batchDispatchRequestThreadPoolNums=16 brokerFastFailureEnable=true
        clientCallbackExecutorThreads=2 clientManagerThreadPoolQueueCapacity=1000000
        clientManageThreadPoolNums=32 clientWorkerThreads=4
        consumerManagerThreadPoolQueueCapacity=1000000 consumerManageThreadPoolNums=32
        disableCallbackExecutor=false dispatchCqThreads=10
        endTransactionPoolQueueCapacity=100000 endTransactionThreadPoolNums=12
        heartbeatThreadPoolNums=2 heartbeatThreadPoolQueueCapacity=50000
        litePullMessageThreadPoolNums=20 litePullThreadPoolQueueCapacity=100000
        loadBalanceProcessorThreadPoolNums=32 loadBalanceThreadPoolQueueCapacity=100000
        maxAsyncPutMessageRequests=5000 processReplyMessageThreadPoolNums=20
        pullMessageThreadPoolNums=20 pullThreadPoolQueueCapacity=100000
        putMessageFutureThreadPoolNums=2 putThreadPoolQueueCapacity=10000
        queryMessageThreadPoolNums=10 queryThreadPoolQueueCapacity=20000
        recoverThreadPoolNums=32 replyThreadPoolQueueCapacity=10000 sendMessageThreadPoolNums=2
        sendThreadPoolQueueCapacity=10000 waitTimeMillsInAdminBrokerQueue=5000
        waitTimeMillsInHeartbeatQueue=31000 waitTimeMillsInLitePullQueue=5000
        waitTimeMillsInPullQueue=5000 waitTimeMillsInSendQueue=200
        waitTimeMillsInTransactionQueue=3000
    """,
    NO_NETTY: """
        channelNotActiveInterval=60000 clientChannelMaxIdleTimeSeconds=120
        clientCloseSocketIfTimeout=true clientPooledByteBufAllocatorEnable=false
        connectTimeoutMillis=3000 disableNettyWorkerGroup=false
        enableFastChannelEventProcess=false enableReconnectForGoAway=true
        maxReconnectIntervalTimeSeconds=60 socksProxyConfig={}
    """,
    NO_SEMAPHORE: """
        clientAsyncSemaphoreValue=65535 clientOnewaySemaphoreValue=65535
    """,
    SYSTEM_BUFFERS: """
        clientSocketRcvBufSize=0 clientSocketSndBufSize=0
    """,
    "the store has its own ways of writing, recovering and cleaning": """
        accessMessageInMemoryHotRatio=26 autoMessageVersionOnTopicLen=true
        checkCommitLogOffsetOnRecover=false cleanSwapedMapInterval=300000
        commitLogForceSwapMapInterval=43200000 commitLogRecoverMaxNum=10
        commitLogSwapMapInterval=3600000 commitLogSwapMapReserveFileNum=100
        correctLogicMinOffsetForceInterval=300000 correctLogicMinOffsetSleepInterval=1
        debugLockEnable=false deleteCommitLogFilesInterval=100
        deleteConsumeQueueFilesInterval=100 destroyMapedFileIntervalForcibly=120000
        dispatchCqCacheNum=4096 dispatchFromSenderThread=false enableAcceleratedRecovery=false
        enableAsyncReput=true enableBuildConsumeQueueConcurrently=false
        enableLogConsumeQueueRepeatedlyBuildWhenRecover=false enableRunningFlagsInFlush=false
        fastFailIfNoBufferInStorePool=false flushCommitLogTimed=true
        flushLeastPagesWhenWarmMapedFile=4096 forceVerifyPropCRC=false highSpeedMode=false
        indexFileReadEnable=true indexFileWriteEnable=true
        logicalDiskSpaceCleanForciblyThreshold=0.8 logicQueueForceSwapMapInterval=43200000
        logicQueueSwapMapInterval=3600000 logicQueueSwapMapReserveFileNum=20
        mappedFileSwapEnable=true maxBatchDeleteFilesNum=50 maxConsumeQueueScan=20000
        maxRecoveryCommitlogFiles=30 messageIndexSafe=false osPageCacheBusyTimeOutMills=1000
        putConsumeQueueDataByFileChannel=true putMessageTimeout=8000
        putMsgIndexHightWater=600000 recheckReputOffsetFromCq=false recoverConcurrently=false
        redeleteHangedFileInterval=120000 sharedByteBufferNum=16
        spinLockCollisionRetreatOptimalDegree=1000 topicQueueLockNum=32 transferMsgByHeap=true
        travelCqFileNumWhenGetMessage=1 useABSLock=false useReentrantLockWhenPutMessage=true
        wakeCommitWhenPutMessage=true wakeFlushWhenPutMessage=false warmMapedFileEnable=false
        writeWithoutMmap=false
    """,
    "the store has no RocksDB": """
        bottomMostCompressionTypeForConsumeQueueStore=zstd cleanRocksDBDirtyCQIntervalMin=60
        combineAssignOffsetCQType=default combineCQEnableCheckSelf=false
        combineCQLoadingCQTypes=default;defaultRocksDB combineCQMaxExtraSearchCommitLogFiles=3
        combineCQPreferCQType=default combineCQUseRocksdbForLmq=false enableRocksDBLog=false
        indexRocksDBEnable=false iteratorWhenUseRocksdbConsumeQueue=true
        maxRocksDBIndexQueryDays=7 memTableFlushIntervalMs=3600000
        realTimePersistRocksDBConfig=true rocksdbCompressionType=lz4
        rocksdbCQDoubleWriteEnable=false rocksdbFlushWalFrequency=1024
        rocksdbWalFileRollingThreshold=1073741824 statRocksDBCQIntervalSec=10 storeType=default
        timerRocksDBEnable=false timerRocksDBPrecisionMs=1000 timerRocksDBRollIntervalHours=1
        timerRocksDBRollMaxTps=8000.0 timerRocksDBRollRangeHours=2 timerRocksDBStopScan=false
        timerRocksDBTimeExpiredMaxTps=200000.0 transactionCheckRocksdbCoreThreads=2
        transactionCheckRocksdbMaxThreads=5 transactionCheckRocksdbQueueCapacity=2000
        transRocksDBEnable=false useSeparateStorePathForRocksdbCQ=false
        useSingleRocksDBForAllConfigs=false
    """,
    "the store has one plain queue per topic and queue id": """
        compactionCqMappedFileSize=10485760 compactionMappedFileSize=104857600
        compactionScheduleInternal=900000 compactionThreadNum=6 enableBatchPush=false
        enableCompaction=true enableLmq=false enableLmqStats=false enableMultiDispatch=false
        isEnableBatchPush=false mapperFileSizeBatchConsumeQueue=13800000
        maxLmqConsumeQueueNum=20000 maxOffsetMapSize=104857600 searchBcqByCacheEnable=true
    """,
    "reading old messages is not limited by itself": """
        cgColdReadThreshold=3145728 coldCtrStrategyEnable=false coldDataFlowControlEnable=false
        coldDataScanEnable=false dataReadAheadEnable=true globalColdReadThreshold=104857600
        usePIDColdCtrStrategy=true
    """,
    "topics, groups and offsets are kept in JSON files": """
        configManagerVersion=v1 consumerOffsetUpdateVersionStep=500
        persistConsumerOffsetIncrementally=false
    """,
    "one task delivers all delayed messages": """
        delayOffsetUpdateVersionStep=200 enableScheduleAsyncDeliver=false maxDelayTime=40
        scheduleAsyncDeliverMaxPendingLimit=2000 scheduleAsyncDeliverMaxResendNum2Blocked=3
    """,
    "one task does all for timed messages": """
        appendTopicForTimerDeleteKey=false commercialTimerCount=1
        timerCheckMetricsWhen=05 timerColdDataCheckIntervalMs=60000
        timerEnableCheckMetrics=true timerEnableDisruptor=false
        timerEnableRetryUntilSuccess=false timerGetMessageThreadNum=3
        timerInterceptDelayLevel=false timerMetricSmallThreshold=1000000
        timerProgressLogIntervalMs=10000 timerPutMessageThreadNum=3
        timerRecallToTimelineEnable=true timerRecallToTimeWheelEnable=true
        timerReputServiceCorePoolSize=6 timerReputServiceMaxPoolSize=6
        timerReputServiceQueueCapacity=10000 timerSkipUnknownError=false
        timerStopDequeue=false timerStopEnqueue=false timerWarmEnable=false
        timerWheelSnapshotFlush=false timerWheelSnapshotIntervalMs=10000
    """,
    "transactions are not supported yet": """
        enableTransactionMetrics=true transactionCheckInterval=30000 transactionCheckMax=15
        transactionMetricFlushInterval=10000 transactionOpBatchInterval=3000
        transactionOpMsgMaxSize=4096 transactionTimeOut=6000
        transWriteOriginTransHalfEnable=true
    """,
    "filters other than tags are not supported yet": """
        bitMapLengthConsumeQueueExt=112 enableCalcFilterBitMap=false enableConsumeQueueExt=false
        enablePropertyFilter=false expectConsumerNumUseFilter=32
        filterDataCleanTimeSpan=86400000 filterServerNums=0 filterSupportRetry=false
        maxErrorRateOfBloomFilter=20 maxFilterMessageSize=16000 useStaticSubscription=false
    """,
    "pop consumption is not supported yet": """
        ackMessageThreadPoolNums=16 ackThreadPoolQueueCapacity=100000 appendAckAsync=false
        appendCkAsync=false defaultMessageRequestMode=PULL defaultPopShareQueueNum=-1
        enableLiteEventMode=true enableLitePopLog=false enableLmqQuota=false
        enableNotifyAfterPopOrderLockRelease=true enableNotifyBeforePopCalculateLag=true
        enablePopBatchAck=false enablePopBufferMerge=false enablePopLog=false
        enablePopMessageThreshold=false enablePopMetrics=true enableRetryTopicV2=false
        enableSkipLongAwaitingAck=false initPopOffsetByCheckMsgInMem=true
        liteEventCheckInterval=10000 liteEventFullDispatchDelayTime=10000
        liteEventFullDispatchDelayTimeForWildcardGroup=10000 liteLagCountMetricsEnable=false
        liteLagLatencyCollectEnable=false liteLagLatencyMetricsEnable=false
        liteLagLatencyTopK=50 liteSubscriptionCheckInterval=120000
        liteSubscriptionCheckTimeoutMills=180000 liteTtlCheckInterval=120000
        loadBalancePollNameServerInterval=30000 maxClientEventCount=100
        maxLiteSubscriptionCount=100000 maxMessageFilterNumForNotification=64
        maxPopPollingSize=100000 minLiteTTl=900000 popCkMaxBufferSize=200000
        popCkOffsetMaxQueueSize=20000 popCkStayBufferTime=10000 popCkStayBufferTimeOut=3000
        popConsumerFSServiceInit=true popConsumerKVServiceEnable=false
        popConsumerKVServiceInit=false popConsumerKVServiceLog=false popFromRetryProbability=20
        popFromRetryProbabilityForPriority=0 popInflightMessageThreshold=10000
        popLongPollingForceNotifyInterval=800 popPollingMapExpireTimeSeconds=600
        popPollingMapSize=100000 popPollingSize=1024 popResponseReturnActualRetryTopic=false
        popReviveConcurrency=32 popReviveMaxAttemptTimes=16 popReviveMaxReturnSizePerRead=16384
        popReviveSkipIfGroupAbsent=true priorityOrderAsc=true
        retrieveMessageFromPopRetryTopicV1=true reviveAckWaitMs=180000 reviveInterval=1000
        reviveMaxSlow=3 reviveQueueNum=8 reviveScanTime=10000 serverLoadBalancerEnable=true
        skipWhenCKRePutReachMaxTimes=false useMessageFilterForNotification=true
        useSeparateRetryQueue=false waitTimeMillsInAckQueue=3000
    """,
    "replication is not supported yet": """
        allAckInSyncStateSet=false asyncLearner=false brokerElectionPriority=2147483647
        brokerHeartbeatInterval=1000 brokerNotActiveTimeoutMillis=10000
        checkSyncStateSetPeriod=5000 cleanOfflineBrokerInterval=30000 controllerAddr=
        controllerHeartBeatTimeoutMills=10000 diskFallRecorded=true duplicationEnable=false
        enableAutoInSyncReplicas=false enableControllerMode=false enableDLegerCommitLog=false
        enableNetWorkFlowControl=false enableRemoteEscape=false enableSlaveActingMaster=false
        enableSplitMetadata=true fetchControllerAddrByDnsLookup=false forwardTimeout=3000
        haFlowControlEnable=false haHousekeepingInterval=20000 haMaxGapNotInSync=268435456
        haMaxTimeSlaveNotCatchup=15000 haSendHeartbeatInterval=5000
        haSlaveFallbehindMax=268435456 haTransferBatchSize=32768 inSyncReplicas=1
        isBrokerContainer=false isInBrokerContainer=false lockInStrictMode=false
        maxChecksumRange=1073741824 maxHaTransferByteInSecond=104857600
        maxSlaveResendLength=268435456 minInSyncReplicas=1 offsetCheckInSlave=false
        readUnCommitted=false replicasPerDiskPartition=1 sendHeartbeatTimeoutMillis=1000
        skipPreOnline=false slaveTimeout=3000 splitMetadataSize=2000
        syncBrokerMemberGroupPeriod=1000 syncBrokerMetadataPeriod=5000
        syncControllerMetadataPeriod=10000 syncFromLastFile=false
        syncMasterFlushOffsetWhenStartup=false totalReplicas=1
    """,
    "access control is not supported yet": """
        aclEnable=false authenticationEnabled=false authorizationEnabled=false
    """,
    "not supported yet": """
        broadcastOffsetExpireMaxSecond=300 broadcastOffsetExpireSecond=120
        clearRetryTopicWhenDeleteTopic=true consumerFallbehindThreshold=17179869184
        defaultQueryMaxNum=32 disableConsumeIfConsumerReadSlowly=false
        disappearTimeAfterStart=-1 enableBroadcastOffsetStore=true
        enableCleanExpiredOffset=false enableCreateSysGroup=true enableMixedMessageType=false
        enableRegisterProducer=true flushConsumerOffsetHistoryInterval=60000 maxTopicLength=127
        messageStorePlugIn= pullBatchMaxMessageCount=160 realTimeNotifyConsumerChange=true
        rejectPullConsumerEnable=false
        subscriptionExpiredTimeout=600000
        validateSystemTopicWhenUpdateTopic=true
    """,
    "figures are served as Prometheus text, see healthPort": """
        accountStatsEnable=true accountStatsPrintZeroValues=true autoDeleteUnusedStats=true
        commercialBaseCount=1 commercialBigCount=1 commercialEnable=true
        commercialSizePerMsg=4096 commercialTransCount=1 enableConnectionMetrics=true
        enableDetailStat=true enableLagAndDlqMetrics=true enableMessageStoreMetrics=true
        enableRemotingMetrics=true enableRequestMetrics=true enableScheduleMessageStats=true
        enableStatsMetrics=true estimateAccumulation=true isolateLogEnable=false
        maxStatsIdleTimeInMinutes=-1 metricGrpcExporterIntervalInMills=60000
        metricGrpcExporterTimeOutInMills=3000 metricLoggingExporterIntervalInMills=10000
        metricsExportBatchMaxDataPoints=1000 metricsExporterType=DISABLE
        metricsGrpcExporterHeader= metricsGrpcExporterTarget= metricsInDelta=false metricsLabel=
        metricsOtelCardinalityLimit=50000 metricsPromExporterHost= metricsPromExporterPort=5557
        printChannelGroups=false printChannelGroupsMinNum=5 sampleCountThreshold=5000
        sampleSteps=32
    """,
    "all topics are registered with one request": """
        enableSingleTopicRegister=false enableSplitRegistration=false splitRegistrationSize=800
    """,
    "name servers are those of namesrvAddr": """
        compatibleWithOldNameSrv=true fetchNamesrvAddrByAddressServer=false
        fetchNameSrvAddrByDnsLookup=false fetchNamesrvAddrInterval=10000
        isScanAvailableNameSrv=true updateNameServerAddrPeriod=120000
    """,
    "tls.enable says whether name servers are talked to with TLS": """
        useTLS=false
    """,
    "no installation of Apache RocketMQ is needed": """
        rocketmqHome=
    """,
}


def _inert_keys() -> dict[str, InertKey]:
    keys: dict[str, InertKey] = {}
    for reason, block in _KEYS_BY_REASON.items():
        for entry in block.split():
            key, _, default = entry.partition("=")
            keys[key] = InertKey(default, reason, secret=key in _SECRETS)
    return keys


INERT_KEYS: Mapping[str, InertKey] = MappingProxyType(_inert_keys())
