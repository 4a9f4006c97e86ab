// Sends at a steady pace with the client of RocketMQ in Go, one row a send: tests/support/steady.py says what a row has.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

const bodyBytes = 1024

type sent struct {
	Index  int      `json:"index"`
	Begin  int64    `json:"begin"`
	Micros int64    `json:"micros"`
	Tried  []string `json:"tried"`
	Broker *string  `json:"broker"`
	Error  *string  `json:"error"`
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func main() {
	namesrv := flag.String("namesrv", "", "name servers, separated by semicolons")
	topic := flag.String("topic", "", "topic")
	run := flag.String("run", "", "the producer group, and how keys of messages begin")
	timeout := flag.Int("timeout-ms", 3000, "for an attempt")
	senders := flag.Int("senders", 4, "that send at the same time")
	pause := flag.Int("pause-ms", 20, "of each sender between two sends")
	flag.String("fault", "false", "this client has no latency fault tolerance: ignored")
	flag.Parse()

	rlog.SetLogLevel("error")
	sender, err := rocketmq.NewProducer(
		producer.WithNsResolver(primitive.NewPassthroughResolver(strings.Split(*namesrv, ";"))),
		producer.WithGroupName(*run),
		producer.WithSendMsgTimeout(time.Duration(*timeout)*time.Millisecond),
	)
	must(err)
	must(sender.Start())

	rows := json.NewEncoder(os.Stdout)
	var guard sync.Mutex
	next := 0
	write := func(row any) {
		guard.Lock()
		defer guard.Unlock()
		must(rows.Encode(row))
	}
	write(map[string]string{"event": "started"})
	for range *senders {
		go func() {
			for {
				guard.Lock()
				index := next
				next++
				guard.Unlock()
				write(send(sender, *topic, fmt.Sprintf("%s-%d", *run, index), index))
				time.Sleep(time.Duration(*pause) * time.Millisecond)
			}
		}()
	}
	select {} // until it is killed
}

func send(sender rocketmq.Producer, topic string, key string, index int) sent {
	message := primitive.NewMessage(topic, make([]byte, bodyBytes))
	message.WithKeys([]string{key})
	begin := time.Now()
	result, err := sender.SendSync(context.Background(), message)
	row := sent{Index: index, Begin: begin.UnixMilli(), Micros: time.Since(begin).Microseconds(), Tried: []string{}}
	switch {
	case err != nil:
		text := err.Error()
		row.Error = &text
	case result.Status != primitive.SendOK:
		text := fmt.Sprint("status ", result.Status)
		row.Error = &text
	default:
		row.Broker = &result.MessageQueue.BrokerName
	}
	return row
}
