package main

import "os"

// options are those of all verbs; what a command leaves out keeps the value of usual.
type options struct {
	Namesrv    string `json:"namesrv"`
	Group      string `json:"group"`
	Topic      string `json:"topic"`
	Name       string `json:"name"`
	VIP        bool   `json:"vip"`
	TimeoutMs  int    `json:"timeoutMs"`
	Expression string `json:"expression"`
	From       string `json:"from"`

	Producer     string    `json:"producer"`
	Mode         string    `json:"mode"`
	Retries      int       `json:"retries"`
	CompressOver int       `json:"compressOver"`
	Messages     []message `json:"messages"`
	Bodies       []string  `json:"bodies"`

	IsOrderly         bool   `json:"orderly"`
	Model             string `json:"model"`
	Threads           int    `json:"threads"`
	MaxReconsumeTimes int32  `json:"maxReconsumeTimes"`
	SuspendMs         int    `json:"suspendMs"`
	HoldMs            int    `json:"holdMs"`
	Fail              *rule  `json:"fail"`

	IsAssigned   bool  `json:"assign"`
	IsAutoCommit bool  `json:"autoCommit"`
	Count        int   `json:"count"`
	QueueID      int   `json:"queueId"`
	Offset       int64 `json:"offset"`
}

// message is one to send, as it is described in a command.
type message struct {
	Body       string            `json:"body"`
	BodyFile   string            `json:"bodyFile"`
	Tags       string            `json:"tags"`
	Keys       string            `json:"keys"`
	Properties map[string]string `json:"properties"`
	DelayLevel int               `json:"delayLevel"`
	HashKey    string            `json:"hashKey"`
	QueueID    *int              `json:"queueId"`
}

// rule says how often a message fails, and which: all of them when there is no body.
type rule struct {
	Times int     `json:"times"`
	Body  *string `json:"body"`
}

func usual() options {
	return options{
		Group: "PG_features", Producer: "main", Mode: "sync", Expression: "*", From: "first",
		Model: "clustering", Threads: 4, MaxReconsumeTimes: -1, SuspendMs: 100, Count: 1,
		Offset: atBegin,
	}
}

func (m message) bytes() ([]byte, error) {
	if m.BodyFile != "" {
		return os.ReadFile(m.BodyFile)
	}
	return []byte(m.Body), nil
}
