package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

// Longer bodies are told by their size and hash only.
const shownBodyBytes = 4096

type consumerTable struct {
	started map[string]rocketmq.PushConsumer
}

func newConsumers() *consumerTable {
	return &consumerTable{started: map[string]rocketmq.PushConsumer{}}
}

func (t *consumerTable) start(id int, given options) error {
	if err := given.checkVIP(); err != nil {
		return err
	}
	started, err := startPush(given, (&handler{id: id, given: given, failed: map[string]int{}}).handle)
	if err != nil {
		return err
	}
	t.started[given.Name] = started
	return nil
}

func (t *consumerTable) stop(name string) error {
	started, isThere := t.started[name]
	if !isThere {
		return nil
	}
	delete(t.started, name)
	return started.Shutdown()
}

type listener = func(context.Context, ...*primitive.MessageExt) (consumer.ConsumeResult, error)

func startPush(given options, handle listener) (rocketmq.PushConsumer, error) {
	model := consumer.Clustering
	if given.Model == "broadcasting" {
		model = consumer.BroadCasting
	}
	made, err := rocketmq.NewPushConsumer(
		consumer.WithNameServer([]string{given.Namesrv}),
		consumer.WithGroupName(given.Group),
		consumer.WithInstance(given.Name),
		consumer.WithConsumerModel(model),
		consumer.WithConsumerOrder(given.IsOrderly),
		consumer.WithConsumeFromWhere(given.where()),
		consumer.WithConsumeGoroutineNums(given.Threads),
		consumer.WithConsumeMessageBatchMaxSize(1),
		consumer.WithMaxReconsumeTimes(given.MaxReconsumeTimes),
	)
	if err != nil {
		return nil, err
	}
	if err := made.Subscribe(given.Topic, given.selector(), handle); err != nil {
		return nil, err
	}
	return made, made.Start()
}

func (o options) where() consumer.ConsumeFromWhere {
	if o.From == "last" {
		return consumer.ConsumeFromLastOffset
	}
	return consumer.ConsumeFromFirstOffset
}

func (o options) selector() consumer.MessageSelector {
	return consumer.MessageSelector{Type: consumer.TAG, Expression: o.Expression}
}

// handler tells of each message, and fails as often as it was asked to.
type handler struct {
	id     int
	given  options
	lock   sync.Mutex
	failed map[string]int
}

func (h *handler) handle(
	ctx context.Context, messages ...*primitive.MessageExt,
) (consumer.ConsumeResult, error) {
	// A batch is one message: each has an outcome of its own.
	received := messages[0]
	begin := time.Now()
	time.Sleep(time.Duration(h.given.HoldMs) * time.Millisecond)
	if !h.isToFail(received) {
		emitReceived(h.id, h.given.Name, received, "ok", begin)
		return consumer.ConsumeSuccess, nil
	}
	emitReceived(h.id, h.given.Name, received, "later", begin)
	if orderly, isOrderly := primitive.GetOrderlyCtx(ctx); isOrderly {
		orderly.SuspendCurrentQueueTimeMillis = h.given.SuspendMs
		return consumer.SuspendCurrentQueueAMoment, nil
	}
	return consumer.ConsumeRetryLater, nil
}

func (h *handler) isToFail(received *primitive.MessageExt) bool {
	rule := h.given.Fail
	if rule == nil || (rule.Body != nil && *rule.Body != string(received.Body)) {
		return false
	}
	h.lock.Lock()
	defer h.lock.Unlock()
	before := h.failed[received.MsgId]
	h.failed[received.MsgId] = before + 1
	return rule.Times < 0 || before < rule.Times
}

func emitReceived(
	id int, name string, received *primitive.MessageExt, outcome string, begin time.Time,
) {
	hash := sha256.Sum256(received.Body)
	e := event{
		"event": "received", "name": name, "outcome": outcome, "topic": received.Topic,
		"queueId": received.Queue.QueueId, "queueOffset": received.QueueOffset,
		"size": len(received.Body), "sha256": hex.EncodeToString(hash[:]),
		"storeSize": received.StoreSize, "tags": received.GetTags(), "keys": received.GetKeys(),
		"reconsumeTimes": received.ReconsumeTimes, "msgId": received.MsgId,
		"offsetMsgId": received.OffsetMsgId, "properties": received.GetProperties(),
		"bornHost": received.BornHost, "bornMs": received.BornTimestamp,
		"storeMs": received.StoreTimestamp, "beginUs": begin.UnixMicro(),
		"endUs": time.Now().UnixMicro(),
	}
	if len(received.Body) <= shownBodyBytes {
		e["body"] = string(received.Body)
	}
	emit(id, e)
}
