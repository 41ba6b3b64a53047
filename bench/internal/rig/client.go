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

// A Target is the server that a client program connects to.
type Target struct {
	// Era is the only era that the server supports. A server in memory uses the
	// client's preferred era.
	Era echo.Era
	// URL is its HTTP endpoint, and Command the command line that starts it on
	// stdio. If both are empty, the client uses a server of its own SDK in
	// memory.
	URL     string
	Command []string
	// Width is the number of concurrent calls.
	Width int
}

// A Connection is a connected client.
type Connection struct {
	// Revision is the negotiated protocol revision.
	Revision string
	// Echo calls echo.Tool and returns the text of the result. It is called
	// concurrently by Width goroutines.
	Echo func(ctx context.Context, message string) (string, error)
}

// openTimeout bounds connecting a client.
const openTimeout = 20 * time.Second

// ClientMain is the main function of a client program. It takes the target from
// the command line, connects, lists the tools as a host does, and then makes
// calls as requested on standard input. It does not return.
func ClientMain(open func(context.Context, Target) (*Connection, error)) {
	var t Target
	era := flag.String("era", string(echo.Modern), "era of the server: modern or session")
	flag.StringVar(&t.URL, "url", "",
		"HTTP endpoint of the server; without it, the arguments start one on stdio, or it is in memory")
	flag.IntVar(&t.Width, "width", 1, "calls in flight")
	flag.Parse()
	t.Era, t.Command = echo.Era(*era), flag.Args()
	if err := runClient(open, t); err != nil {
		log.Fatal(err)
	}
	os.Exit(0)
}

func runClient(open func(context.Context, Target) (*Connection, error), t Target) error {
	meter, err := listenMeter()
	if err != nil {
		return err
	}
	// Connections may keep the context, so it must not end with openTimeout.
	timer := time.AfterFunc(openTimeout, func() { log.Fatalf("the client did not connect within %v", openTimeout) })
	c, err := open(context.Background(), t)
	timer.Stop()
	if err != nil {
		return err
	}
	if want := t.Era.Revision(); c.Revision != want {
		return fmt.Errorf("negotiated protocol version %s, want %s", c.Revision, want)
	}
	return serveSlices(meter, func(d time.Duration) (load.Slice, error) { return c.run(t.Width, d) })
}

// SliceMain is the main function of a program that sends on its own, with flags of its own. It calls open,
// which must return within 20 seconds, and then the result of open for each slice that is requested on
// standard input. It does not return.
func SliceMain(open func() (func(time.Duration) (load.Slice, error), error)) {
	flag.Parse()
	meter, err := listenMeter()
	if err != nil {
		log.Fatal(err)
	}
	run, err := open()
	if err == nil {
		err = serveSlices(meter, run)
	}
	if err != nil {
		log.Fatal(err)
	}
	os.Exit(0)
}

// listenMeter serves the meter of this process and returns its address.
func listenMeter() (string, error) {
	meter, err := net.Listen("tcp", loopback)
	if err != nil {
		return "", err
	}
	go serveMeter(meter)
	return meter.Addr().String(), nil
}

// serveSlices runs the slices that are requested on standard input.
func serveSlices(meter string, run func(time.Duration) (load.Slice, error)) error {
	announce(Announcement{Meter: meter})
	return load.Serve(os.Stdin, os.Stdout, run)
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

// repeat makes successive calls until d after begin, at least one. The context
// is cancellable, as in a real program.
func (c *Connection) repeat(begin time.Time, d time.Duration) (calls int, err error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for more := true; more; more = time.Since(begin) < d {
		text, err := c.Echo(ctx, echo.Message)
		if err != nil {
			return calls, err
		}
		if text != echo.Message {
			return calls, fmt.Errorf("wrong response: %.300q", text)
		}
		calls++
	}
	return calls, nil
}

// HTTPClient returns an HTTP client with a connection for each call in flight.
// The default client keeps only two idle connections, so an SDK would open a
// new connection for nearly every call.
func HTTPClient(width int) *http.Client {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxIdleConnsPerHost = width
	return &http.Client{Transport: t}
}
