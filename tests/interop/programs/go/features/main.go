// Apache's Go client kept running for many commands: a JSON object per line on standard input,
// events as JSON objects, one per line, on standard output. Commands run one after the other;
// consumers that were started tell what they receive at any time.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime/debug"
	"sync"

	"github.com/apache/rocketmq-client-go/v2/rlog"
)

type command struct {
	ID      int             `json:"id"`
	Verb    string          `json:"verb"`
	Options json.RawMessage `json:"options"`
}

type event map[string]any

var (
	output    sync.Mutex
	producers = newProducers()
	consumers = newConsumers()
	pullers   = newPullers()
	requests  = newRequests()
)

func main() {
	rlog.SetLogLevel("warn")
	commands := json.NewDecoder(os.Stdin)
	emit(0, event{"event": "ready"})
	for {
		var next command
		if err := commands.Decode(&next); err != nil {
			// The end of the commands, or nothing that could be answered.
			os.Exit(0)
		}
		if err := run(next); err != nil {
			emit(next.ID, event{"event": "failed", "error": err.Error()})
		} else {
			emit(next.ID, event{"event": "done"})
		}
		if next.Verb == "exit" {
			os.Exit(0)
		}
	}
}

func run(asked command) (err error) {
	defer func() {
		if broken := recover(); broken != nil {
			err = fmt.Errorf("%v\n%s", broken, debug.Stack())
		}
	}()
	given := usual()
	if len(asked.Options) > 0 {
		if err := json.Unmarshal(asked.Options, &given); err != nil {
			return err
		}
	}
	switch asked.Verb {
	case "send":
		return producers.send(asked.ID, given)
	case "consume":
		return consumers.start(asked.ID, given)
	case "lite-open":
		return pullers.open(given)
	case "lite-poll":
		return pullers.poll(asked.ID, given)
	case "lite-commit":
		return pullers.commit(given)
	case "lite-committed":
		return pullers.committed(asked.ID, given)
	case "lite-seek":
		return pullers.seek(given)
	case "request":
		return requests.send(asked.ID, given)
	case "answer":
		return requests.answer(asked.ID, given)
	case "stop":
		return stop(given.Name)
	case "exit":
		return nil
	default:
		return fmt.Errorf("no such verb: %s", asked.Verb)
	}
}

func stop(name string) error {
	for _, end := range []func(string) error{producers.stop, consumers.stop, pullers.stop} {
		if err := end(name); err != nil {
			return err
		}
	}
	return nil
}

// emit writes one line with the command's id as its first member.
func emit(id int, e event) {
	members, err := json.Marshal(e)
	if err != nil {
		panic(err)
	}
	output.Lock()
	defer output.Unlock()
	fmt.Printf("{\"id\":%d,%s\n", id, members[1:])
}
