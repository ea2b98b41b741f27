// Package goamqp runs Azure's Go client against the broker at POSTROAD_AMQP. It has no transactions, and no way to
// detach a link without closing it.
package goamqp

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"net"
	"net/url"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	amqp "github.com/Azure/go-amqp"
)

const patience = 15 * time.Second

// moment is how long nothing has to come for there to be nothing.
const moment = 300 * time.Millisecond

func unique(label string) string {
	return "test.goamqp." + label + "." + rand.Text()
}

// client is one connection with one session, and what a test cannot go on without.
type client struct {
	t       *testing.T
	ctx     context.Context
	socket  net.Conn
	conn    *amqp.Conn
	session *amqp.Session
}

func connect(t *testing.T, options *amqp.ConnOptions) *client {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	broker, err := url.Parse(os.Getenv("POSTROAD_AMQP"))
	must(t, err)
	socket, err := net.Dial("tcp", broker.Host)
	must(t, err)
	conn, err := amqp.NewConn(ctx, socket, options)
	must(t, err)
	t.Cleanup(func() { conn.Close() })
	session, err := conn.NewSession(ctx, nil)
	must(t, err)
	return &client{t, ctx, socket, conn, session}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func same(t *testing.T, what string, got, want any) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("%s: got %v, want %v", what, got, want)
	}
}

func text(body string) *amqp.Message {
	return &amqp.Message{Header: &amqp.MessageHeader{Durable: true}, Value: body}
}

func (c *client) sender(address string, options *amqp.SenderOptions) *amqp.Sender {
	c.t.Helper()
	sender, err := c.session.NewSender(c.ctx, address, options)
	must(c.t, err)
	return sender
}

func (c *client) receiver(address string, options *amqp.ReceiverOptions) *amqp.Receiver {
	c.t.Helper()
	receiver, err := c.session.NewReceiver(c.ctx, address, options)
	must(c.t, err)
	return receiver
}

func (c *client) send(address string, bodies ...string) {
	c.t.Helper()
	sender := c.sender(address, nil)
	for _, body := range bodies {
		must(c.t, sender.Send(c.ctx, text(body), nil))
	}
	must(c.t, sender.Close(c.ctx))
}

func (c *client) receive(receiver *amqp.Receiver) *amqp.Message {
	c.t.Helper()
	message, err := receiver.Receive(c.ctx, nil)
	must(c.t, err)
	return message
}

// take receives so many messages and accepts them.
func (c *client) take(receiver *amqp.Receiver, count int) []any {
	c.t.Helper()
	bodies := []any{}
	for range count {
		message := c.receive(receiver)
		bodies = append(bodies, message.Value)
		must(c.t, receiver.AcceptMessage(c.ctx, message))
	}
	return bodies
}

// nothing says that no message comes.
func (c *client) nothing(receiver *amqp.Receiver) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.ctx, moment)
	defer cancel()
	message, err := receiver.Receive(ctx, nil)
	if !errors.Is(err, context.DeadlineExceeded) {
		c.t.Fatalf("got %v and %v, want nothing", message, err)
	}
}

func condition(err error) amqp.ErrCond {
	var remote *amqp.Error
	if errors.As(err, &remote) {
		return remote.Condition
	}
	return ""
}

func failures(message *amqp.Message) uint32 {
	if message.Header == nil {
		return 0
	}
	return message.Header.DeliveryCount
}

func TestWhatIsSentIsReceivedInEverySettlementMode(t *testing.T) {
	first, second := amqp.ReceiverSettleModeFirst, amqp.ReceiverSettleModeSecond
	unsettled, settled := amqp.SenderSettleModeUnsettled, amqp.SenderSettleModeSettled
	for name, modes := range map[string]struct {
		sent     *amqp.SenderSettleMode
		asked    *amqp.ReceiverSettleMode
		offered  *amqp.SenderSettleMode
		received *amqp.ReceiverSettleMode
	}{
		"acknowledged both ways":         {&unsettled, &first, nil, &first},
		"the receiver settles second":    {&unsettled, &second, nil, &second},
		"settled ahead, both ways":       {&settled, nil, &settled, nil},
		"whatever the broker would have": {nil, nil, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			c, queue := connect(t, nil), unique("modes")
			sender := c.sender(queue, &amqp.SenderOptions{SettlementMode: modes.sent, RequestedReceiverSettleMode: modes.asked})
			for _, body := range []string{"a", "b"} {
				must(t, sender.Send(c.ctx, text(body), nil))
			}
			receiver := c.receiver(queue, &amqp.ReceiverOptions{
				RequestedSenderSettleMode: modes.offered,
				SettlementMode:            modes.received,
				Credit:                    10,
			})
			same(t, "received", c.take(receiver, 2), []any{"a", "b"})
			must(t, receiver.Close(c.ctx))
			c.nothing(c.receiver(queue, nil))
		})
	}
}

func TestABrowserTakesNothingAndADrainSaysWhenAllWasSeen(t *testing.T) {
	c, queue := connect(t, nil), unique("browse")
	c.send(queue, "a", "b")
	for range 2 {
		browser := c.receiver(queue, &amqp.ReceiverOptions{
			SourceDistributionMode: amqp.SourceDistributionModeCopy,
			Credit:                 -1,
		})
		must(t, browser.IssueCredit(10))
		same(t, "browsed", c.take(browser, 2), []any{"a", "b"})
		must(t, browser.DrainCredit(c.ctx, nil))
		same(t, "more", browser.Prefetched(), (*amqp.Message)(nil))
		must(t, browser.Close(c.ctx))
	}
	same(t, "received", c.take(c.receiver(queue, nil), 2), []any{"a", "b"})
}

func TestEveryOutcomeHasItsEffect(t *testing.T) {
	for name, row := range map[string]struct {
		verdict func(*client, *amqp.Receiver, *amqp.Message) error
		comes   bool
		failed  uint32
	}{
		"accepted": {func(c *client, r *amqp.Receiver, m *amqp.Message) error { return r.AcceptMessage(c.ctx, m) }, false, 0},
		"released": {func(c *client, r *amqp.Receiver, m *amqp.Message) error { return r.ReleaseMessage(c.ctx, m) }, true, 0},
		"modified, failed": {func(c *client, r *amqp.Receiver, m *amqp.Message) error {
			return r.ModifyMessage(c.ctx, m, &amqp.ModifyMessageOptions{DeliveryFailed: true})
		}, true, 1},
		"modified, undeliverable": {func(c *client, r *amqp.Receiver, m *amqp.Message) error {
			return r.ModifyMessage(c.ctx, m, &amqp.ModifyMessageOptions{UndeliverableHere: true})
		}, false, 0},
		"rejected": {func(c *client, r *amqp.Receiver, m *amqp.Message) error {
			return r.RejectMessage(c.ctx, m, &amqp.Error{Condition: amqp.ErrCondDecodeError, Description: "no XML"})
		}, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			c, queue := connect(t, nil), unique("outcomes")
			c.send(queue, "a")
			receiver := c.receiver(queue, nil)
			must(t, row.verdict(c, receiver, c.receive(receiver)))
			if !row.comes {
				c.nothing(receiver)
				return
			}
			again := c.receive(receiver)
			same(t, "failed deliveries", failures(again), row.failed)
			must(t, receiver.AcceptMessage(c.ctx, again))
		})
	}
}

func TestWhatALostConnectionHadComesAgain(t *testing.T) {
	queue := unique("lost")
	lost := connect(t, nil)
	lost.send(queue, "a", "b")
	receiver := lost.receiver(queue, &amqp.ReceiverOptions{Credit: 2})
	same(t, "accepted", lost.take(receiver, 1), []any{"a"})
	same(t, "held", lost.receive(receiver).Value, "b")
	must(t, lost.socket.Close())
	next := connect(t, nil)
	again := next.receiver(queue, nil)
	message := next.receive(again)
	same(t, "again", []any{message.Value, failures(message)}, []any{"b", uint32(1)})
	must(t, again.AcceptMessage(next.ctx, message))
	next.nothing(again)
}

func TestALargeMessagePassesInSmallFrames(t *testing.T) {
	c, queue := connect(t, &amqp.ConnOptions{MaxFrameSize: 4096}), unique("large")
	body := bytes.Repeat([]byte("0123456789abcdef"), 3<<20/16)
	must(t, c.sender(queue, nil).Send(c.ctx, amqp.NewMessage(body), nil))
	receiver := c.receiver(queue, nil)
	message := c.receive(receiver)
	same(t, "as it was sent", bytes.Equal(bytes.Join(message.Data, nil), body), true)
	must(t, receiver.AcceptMessage(c.ctx, message))
}

func TestADynamicNodeAnswersRequests(t *testing.T) {
	c, queue := connect(t, nil), unique("requests")
	replies := c.receiver("", &amqp.ReceiverOptions{DynamicAddress: true})
	address := replies.Address()
	same(t, "a temporary queue", strings.HasPrefix(address, "temp-queue://"), true)
	request := text("ping")
	request.Properties = &amqp.MessageProperties{ReplyTo: &address}
	must(t, c.sender(queue, nil).Send(c.ctx, request, nil))
	server := connect(t, nil)
	receiver := server.receiver(queue, nil)
	got := server.receive(receiver)
	must(t, receiver.AcceptMessage(server.ctx, got))
	// The anonymous relay: a link to nowhere, and an address in each message.
	reply := text("pong")
	reply.Properties = &amqp.MessageProperties{To: got.Properties.ReplyTo}
	must(t, server.sender("", nil).Send(server.ctx, reply, nil))
	same(t, "the answer", c.take(replies, 1), []any{"pong"})
}

func TestASelectorSelects(t *testing.T) {
	c, queue := connect(t, nil), unique("selector")
	sender := c.sender(queue, nil)
	for number := range 4 {
		message := &amqp.Message{Value: int64(number), ApplicationProperties: map[string]any{"number": int64(number)}}
		must(t, sender.Send(c.ctx, message, nil))
	}
	filter := amqp.NewSelectorFilter("number > 1")
	receiver := c.receiver(queue, &amqp.ReceiverOptions{Filters: []amqp.LinkFilter{filter}, Credit: 4})
	same(t, "met", receiver.LinkSourceFilterValue("apache.org:selector-filter:string"), "number > 1")
	same(t, "selected", c.take(receiver, 2), []any{int64(2), int64(3)})
	c.nothing(receiver)
	_, err := c.session.NewReceiver(c.ctx, queue, &amqp.ReceiverOptions{
		Filters: []amqp.LinkFilter{amqp.NewSelectorFilter("this is no selector (")},
	})
	same(t, "no selector", condition(err), amqp.ErrCondInvalidField)
}

func TestADurableSubscriptionIsLeftWithItsConnectionAndEndedWithItsLink(t *testing.T) {
	topic, container := "topic://"+unique("topic"), unique("container")
	subscribe := func() (*client, *amqp.Receiver) {
		c := connect(t, &amqp.ConnOptions{ContainerID: container})
		return c, c.receiver(topic, &amqp.ReceiverOptions{
			Name:               "news",
			SourceDurability:   amqp.DurabilityUnsettledState,
			SourceExpiryPolicy: amqp.ExpiryPolicyNever,
		})
	}
	first, _ := subscribe()
	must(t, first.conn.Close())
	connect(t, nil).send(topic, "while nobody reads")
	second, receiver := subscribe()
	same(t, "kept", second.take(receiver, 1), []any{"while nobody reads"})
	// A close of a link ends its subscription, and this client cannot detach without closing.
	must(t, receiver.Close(second.ctx))
	connect(t, nil).send(topic, "to nobody")
	third, receiver := subscribe()
	third.nothing(receiver)
	must(t, receiver.Close(third.ctx))
}

func TestWhatCannotBeSentIsRejectedWithAReason(t *testing.T) {
	c := connect(t, nil)
	err := c.sender("", nil).Send(c.ctx, text("to nobody"), nil)
	same(t, "no address", condition(err), amqp.ErrCondInvalidField)
	c.send(unique("alive"), "a")
}
