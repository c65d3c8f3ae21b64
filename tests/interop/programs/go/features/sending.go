package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

const (
	sendTimeout = 20 * time.Second
	// The client gives up an asynchronous send after three seconds.
	callbacksTimeout = 20 * time.Second
)

var statusTexts = map[primitive.SendStatus]string{
	primitive.SendOK:                "SEND_OK",
	primitive.SendFlushDiskTimeout:  "FLUSH_DISK_TIMEOUT",
	primitive.SendFlushSlaveTimeout: "FLUSH_SLAVE_TIMEOUT",
	primitive.SendSlaveNotAvailable: "SLAVE_NOT_AVAILABLE",
}

type producerKey struct {
	name, namesrv, group  string
	retries, compressOver int
}

type producerTable struct {
	started map[producerKey]rocketmq.Producer
	count   int
}

func newProducers() *producerTable {
	return &producerTable{started: map[producerKey]rocketmq.Producer{}}
}

func (t *producerTable) send(id int, given options) error {
	var messages []*primitive.Message
	for _, described := range given.Messages {
		made, err := described.made(given.Topic)
		if err != nil {
			return err
		}
		messages = append(messages, made)
	}
	p, err := t.producer(given)
	if err != nil {
		return err
	}
	switch given.Mode {
	case "sync":
		for index, one := range messages {
			result, err := p.SendSync(context.Background(), one)
			emitSent(id, event{"index": index}, result, err)
		}
	case "async":
		return sendAll(p, id, messages)
	case "oneway":
		for index, one := range messages {
			if err := p.SendOneWay(context.Background(), one); err != nil {
				emitSent(id, event{"index": index}, nil, err)
			} else {
				emit(id, event{"event": "sent", "index": index, "status": "ONEWAY"})
			}
		}
	case "batch":
		result, err := p.SendSync(context.Background(), messages...)
		emitSent(id, event{"index": 0, "count": len(messages)}, result, err)
	default:
		return fmt.Errorf("no such mode: %s", given.Mode)
	}
	return nil
}

func sendAll(p rocketmq.Producer, id int, messages []*primitive.Message) error {
	answered := make(chan struct{}, len(messages))
	for index, one := range messages {
		index := index
		var once sync.Once
		callback := func(_ context.Context, result *primitive.SendResult, err error) {
			// The client calls twice when there was no answer.
			once.Do(func() {
				emitSent(id, event{"index": index}, result, err)
				answered <- struct{}{}
			})
		}
		if err := p.SendAsync(context.Background(), callback, one); err != nil {
			callback(context.Background(), nil, err)
		}
	}
	deadline := time.After(callbacksTimeout)
	for range messages {
		select {
		case <-answered:
		case <-deadline:
			return errors.New("not every callback came")
		}
	}
	return nil
}

func (t *producerTable) stop(name string) error {
	for key, p := range t.started {
		if key.name == name {
			delete(t.started, key)
			if err := p.Shutdown(); err != nil {
				return err
			}
		}
	}
	return nil
}

func (t *producerTable) producer(given options) (rocketmq.Producer, error) {
	if err := given.checkVIP(); err != nil {
		return nil, err
	}
	key := producerKey{
		given.Producer, given.Namesrv, given.Group, given.Retries, given.CompressOver,
	}
	if p, isStarted := t.started[key]; isStarted {
		return p, nil
	}
	t.count++
	timeout := sendTimeout
	if given.TimeoutMs > 0 {
		timeout = time.Duration(given.TimeoutMs) * time.Millisecond
	}
	settings := []producer.Option{
		producer.WithNameServer([]string{given.Namesrv}),
		producer.WithGroupName(given.Group),
		producer.WithInstanceName(fmt.Sprintf("producer-%d-%d", os.Getpid(), t.count)),
		producer.WithSendMsgTimeout(timeout),
		producer.WithRetry(given.Retries),
		producer.WithQueueSelector(selector{
			producer.NewHashQueueSelector(), producer.NewRoundRobinQueueSelector(),
		}),
	}
	if given.CompressOver > 0 {
		settings = append(settings, producer.WithCompressMsgBodyOverHowmuch(given.CompressOver))
	}
	p, err := rocketmq.NewProducer(settings...)
	if err != nil {
		return nil, err
	}
	if err := p.Start(); err != nil {
		return nil, err
	}
	t.started[key] = p
	return p, nil
}

func (o options) checkVIP() error {
	if o.VIP {
		return errors.New("the client has an option for the VIP channel, which nothing in it reads")
	}
	return nil
}

func (m message) made(topic string) (*primitive.Message, error) {
	body, err := m.bytes()
	if err != nil {
		return nil, err
	}
	made := primitive.NewMessage(topic, body)
	for name, value := range m.Properties {
		made.WithProperty(name, value)
	}
	made.WithTag(m.Tags)
	if m.Keys != "" {
		made.WithKeys(strings.Fields(m.Keys))
	}
	if m.DelayLevel > 0 {
		made.WithDelayTimeLevel(m.DelayLevel)
	}
	made.WithShardingKey(m.HashKey)
	if m.QueueID != nil {
		made.Queue = &primitive.MessageQueue{Topic: topic, QueueId: *m.QueueID}
	}
	return made, nil
}

// selector takes the message's own queue, the one of its sharding key, or the next one.
type selector struct {
	byHash, inTurn producer.QueueSelector
}

func (s selector) Select(
	sent *primitive.Message, queues []*primitive.MessageQueue, lastBroker string,
) *primitive.MessageQueue {
	if sent.Queue != nil {
		for _, queue := range queues {
			if queue.QueueId == sent.Queue.QueueId {
				return queue
			}
		}
		return nil
	}
	if sent.GetShardingKey() != "" {
		return s.byHash.Select(sent, queues, lastBroker)
	}
	return s.inTurn.Select(sent, queues, lastBroker)
}

func emitSent(id int, e event, result *primitive.SendResult, err error) {
	if err != nil {
		e["event"], e["error"], e["code"] = "refused", err.Error(), nil
		var code int
		if found, _ := fmt.Sscanf(err.Error(), "CODE: %d", &code); found == 1 {
			e["code"] = code
		}
	} else {
		e["event"], e["status"] = "sent", statusTexts[result.Status]
		e["msgId"], e["offsetMsgId"] = result.MsgID, result.OffsetMsgID
		e["queueId"], e["queueOffset"] = result.MessageQueue.QueueId, result.QueueOffset
	}
	emit(id, e)
}
