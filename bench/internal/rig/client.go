package rig

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/bench/internal/echo"
	"github.com/patchbay-mcp/patchbay/bench/internal/load"
)

// A Target is the server that a client program connects to, and how.
type Target struct {
	// Era is the one era that the server speaks, but for one in memory, which
	// speaks whatever the client prefers.
	Era echo.Era
	// URL is its HTTP endpoint, and Command the command line that starts it on
	// stdio. When both are empty, the server is the client's own SDK's, in
	// memory.
	URL     string
	Command []string
	// Width is how many calls are in flight at once.
	Width int
}

// A Connection is a client that is connected.
type Connection struct {
	// Revision is the revision that it speaks with the server.
	Revision string
	// Echo calls echo.Tool and returns the text of the result. It is called
	// from as many goroutines as calls are in flight.
	Echo func(ctx context.Context, message string) (string, error)
}

// openTimeout bounds connecting a client.
const openTimeout = 20 * time.Second

// ClientMain runs a client as the whole program, with the target taken from
// the command line: it connects, lists the tools as every host does first, and
// then makes calls whenever standard input says so. It does not return.
func ClientMain(open func(context.Context, Target) (*Connection, error)) {
	var t Target
	era := flag.String("era", string(echo.Modern), "era that the server speaks: modern or session")
	flag.StringVar(&t.URL, "url", "", "HTTP endpoint of the server; without it, the arguments start one on stdio, or it is in memory")
	flag.IntVar(&t.Width, "width", 1, "calls in flight")
	flag.Parse()
	t.Era, t.Command = echo.Era(*era), flag.Args()
	if err := runClient(open, t); err != nil {
		log.Fatal(err)
	}
	os.Exit(0)
}

func runClient(open func(context.Context, Target) (*Connection, error), t Target) error {
	meter, err := net.Listen("tcp", loopback)
	if err != nil {
		return err
	}
	go serveMeter(meter)
	// Connections may keep the context, so it must not end with openTimeout.
	timer := time.AfterFunc(openTimeout, func() { log.Fatal("the client does not connect in time") })
	c, err := open(context.Background(), t)
	timer.Stop()
	if err != nil {
		return err
	}
	if want := t.Era.Revision(); c.Revision != want {
		return fmt.Errorf("the client speaks %s, want %s", c.Revision, want)
	}
	announce(Announcement{Meter: meter.Addr().String()})
	return load.Serve(os.Stdin, os.Stdout, func(d time.Duration) (load.Slice, error) { return c.run(t.Width, d) })
}

// run makes calls for about d, width at a time, and waits for all of them.
func (c *Connection) run(width int, d time.Duration) (load.Slice, error) {
	var (
		calls = make([]int, width)
		errs  = make([]error, width)
		all   sync.WaitGroup
		begin = time.Now()
	)
	for i := range width {
		all.Go(func() { calls[i], errs[i] = c.repeat(begin, d) })
	}
	all.Wait()
	slice := load.Slice{Wall: time.Since(begin)}
	for _, n := range calls {
		slice.Calls += n
	}
	return slice, errors.Join(errs...)
}

// repeat makes one call after the other until d after begin, at least one. The
// context can end, as that of every call of a real program can.
func (c *Connection) repeat(begin time.Time, d time.Duration) (calls int, err error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for more := true; more; more = time.Since(begin) < d {
		text, err := c.Echo(ctx, echo.Message)
		if err != nil {
			return calls, err
		}
		if text != echo.Message {
			return calls, fmt.Errorf("wrong answer: %.300q", text)
		}
		calls++
	}
	return calls, nil
}

// HTTPClient is net/http's client with a connection for each call in flight.
// With the default, which keeps two, an SDK that uses it would connect anew
// for nearly every call.
func HTTPClient(width int) *http.Client {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxIdleConnsPerHost = width
	return &http.Client{Transport: t}
}
