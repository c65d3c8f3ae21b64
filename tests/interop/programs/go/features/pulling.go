package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/admin"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

const (
	atBegin = -1
	atEnd   = -2
	// Beyond every queue: the broker answers with its end.
	beyond = 1 << 40

	usualPoll   = time.Second
	pullCount   = 32
	pullAgainIn = 100 * time.Millisecond
)

// puller is a pull consumer. The client has two ways, and this has both: subscribed, the client
// shares the queues with its group and collects; assigned, we pull every queue ourselves.
type puller struct {
	given    options
	consumer rocketmq.PullConsumer
	queues   []*primitive.MessageQueue
	polled   []*consumer.ConsumeRequest
	pulled   chan pulled
	lock     sync.Mutex
	visits   map[int]int
	next     map[int]int64
}

// pulled are messages of one queue; a seek makes those of an earlier visit worthless.
type pulled struct {
	queue, visit int
	messages     []*primitive.MessageExt
}

type pullerTable struct {
	started map[string]*puller
}

func newPullers() *pullerTable {
	return &pullerTable{started: map[string]*puller{}}
}

func (t *pullerTable) open(given options) error {
	if err := given.checkVIP(); err != nil {
		return err
	}
	queues, err := queuesOf(given)
	if err != nil {
		return err
	}
	made, err := rocketmq.NewPullConsumer(
		consumer.WithNameServer([]string{given.Namesrv}),
		consumer.WithGroupName(given.Group),
		consumer.WithInstance(given.Name),
		consumer.WithConsumeFromWhere(given.where()),
		consumer.WithPullBatchSize(pullCount),
	)
	if err != nil {
		return err
	}
	if err := made.Subscribe(given.Topic, given.selector()); err != nil {
		return err
	}
	if err := made.Start(); err != nil {
		return err
	}
	p := &puller{
		given: given, consumer: made, queues: queues,
		pulled: make(chan pulled), visits: map[int]int{}, next: map[int]int64{},
	}
	t.started[given.Name] = p
	if given.IsAssigned {
		return p.assign()
	}
	return nil
}

func (t *pullerTable) poll(id int, given options) error {
	p, err := t.named(given.Name)
	if err != nil {
		return err
	}
	timeout := usualPoll
	if given.TimeoutMs > 0 {
		timeout = time.Duration(given.TimeoutMs) * time.Millisecond
	}
	end := time.Now().Add(timeout)
	for missing := given.Count; missing > 0 && time.Now().Before(end); {
		for _, received := range p.poll(time.Until(end)) {
			emitReceived(id, given.Name, received, "ok", time.Now())
			missing--
		}
	}
	if p.given.IsAutoCommit {
		return p.commit()
	}
	return nil
}

func (t *pullerTable) commit(given options) error {
	p, err := t.named(given.Name)
	if err != nil {
		return err
	}
	return p.commit()
}

func (t *pullerTable) committed(id int, given options) error {
	p, err := t.named(given.Name)
	if err != nil {
		return err
	}
	for _, queue := range p.queues {
		offset, err := p.consumer.CurrentOffset(queue)
		if err != nil {
			return err
		}
		emit(id, event{"event": "committed", "queueId": queue.QueueId, "offset": offset})
	}
	return nil
}

func (t *pullerTable) seek(given options) error {
	p, err := t.named(given.Name)
	if err != nil {
		return err
	}
	if !p.given.IsAssigned {
		return errors.New("the client cannot move a queue that it shares with its group")
	}
	for _, queue := range p.queues {
		if queue.QueueId == given.QueueID {
			return p.pullFrom(queue, given.Offset)
		}
	}
	return fmt.Errorf("no such queue: %d", given.QueueID)
}

func (t *pullerTable) stop(name string) error {
	p, isThere := t.started[name]
	if !isThere {
		return nil
	}
	delete(t.started, name)
	p.lock.Lock()
	for _, queue := range p.queues {
		p.visits[queue.QueueId]++
	}
	p.lock.Unlock()
	return p.consumer.Shutdown()
}

func (t *pullerTable) named(name string) (*puller, error) {
	p, isThere := t.started[name]
	if !isThere {
		return nil, fmt.Errorf("no such consumer: %s", name)
	}
	return p, nil
}

func queuesOf(given options) ([]*primitive.MessageQueue, error) {
	resolver := primitive.NewPassthroughResolver([]string{given.Namesrv})
	tool, err := admin.NewAdmin(admin.WithResolver(resolver))
	if err != nil {
		return nil, err
	}
	defer tool.Close()
	return tool.FetchPublishMessageQueues(context.Background(), given.Topic)
}

// assign starts every queue at the group's offset, or where the command says if it has none.
func (p *puller) assign() error {
	for _, queue := range p.queues {
		offset, err := p.consumer.CurrentOffset(queue)
		if err != nil {
			return err
		}
		if offset < 0 && p.given.From == "last" {
			offset = atEnd
		}
		if err := p.pullFrom(queue, offset); err != nil {
			return err
		}
	}
	return nil
}

func (p *puller) pullFrom(queue *primitive.MessageQueue, offset int64) error {
	if offset == atBegin {
		offset = 0
	} else if offset == atEnd {
		result, err := p.consumer.PullFrom(context.Background(), queue, beyond, 1)
		if err != nil {
			return err
		}
		offset = result.NextBeginOffset
	}
	p.lock.Lock()
	p.visits[queue.QueueId]++
	visit := p.visits[queue.QueueId]
	p.next[queue.QueueId] = offset
	p.lock.Unlock()
	// The client waits at the end of a queue for as long as the broker lets it, hence one each.
	go p.pull(*queue, visit, offset)
	return nil
}

func (p *puller) pull(queue primitive.MessageQueue, visit int, offset int64) {
	for p.isCurrent(queue.QueueId, visit) {
		result, err := p.consumer.PullFrom(context.Background(), &queue, offset, pullCount)
		if err != nil {
			time.Sleep(pullAgainIn)
			continue
		}
		offset = result.NextBeginOffset
		if result.Status == primitive.PullFound {
			p.pulled <- pulled{queue.QueueId, visit, result.GetMessageExts()}
		}
	}
}

func (p *puller) isCurrent(queue, visit int) bool {
	p.lock.Lock()
	defer p.lock.Unlock()
	return p.visits[queue] == visit
}

func (p *puller) poll(timeout time.Duration) []*primitive.MessageExt {
	if !p.given.IsAssigned {
		request, err := p.consumer.Poll(context.Background(), timeout)
		if err != nil {
			return nil
		}
		p.polled = append(p.polled, request)
		return request.GetMsgList()
	}
	select {
	case found := <-p.pulled:
		if len(found.messages) == 0 || !p.isCurrent(found.queue, found.visit) {
			return nil
		}
		p.next[found.queue] = found.messages[len(found.messages)-1].QueueOffset + 1
		return found.messages
	case <-time.After(timeout):
		return nil
	}
}

// commit gives the offsets to the client, which sends them without waiting for an answer.
func (p *puller) commit() error {
	for _, request := range p.polled {
		p.consumer.ACK(context.Background(), request, consumer.ConsumeSuccess)
	}
	p.polled = nil
	if p.given.IsAssigned {
		for _, queue := range p.queues {
			if err := p.consumer.UpdateOffset(queue, p.next[queue.QueueId]); err != nil {
				return err
			}
		}
	}
	return p.consumer.PersistOffset(context.Background(), p.given.Topic)
}
