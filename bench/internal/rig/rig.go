// Package rig is shared by all server programs of the benchmark. It provides
// their flags, the loopback listener, and a meter that reports the resource
// usage of the process. The meter has its own connection and costs nothing
// between readings.
package rig

import (
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"

	"github.com/patchbay-mcp/patchbay/bench/internal/echo"
)

// loopback is the listen address. The system chooses the port.
const loopback = "127.0.0.1:0"

// Options are the options of a server program.
type Options struct {
	// Era is the era of the load. A server that supports both eras ignores it.
	Era echo.Era
	// SSE requests responses as event streams, where that is a setting.
	SSE bool
	// Validate requests validation of arguments, where that is a setting.
	Validate bool
	// Tool is the only tool that the load calls. Only the baseline server uses
	// it.
	Tool string
	// Tools, if not zero, is the number of tools that the server offers instead
	// of the usual ones, each like echo.Tool.
	Tools int
	// Wide makes these tools like echo.WideTool.
	Wide bool
}

// A Program is one server with its two transports.
type Program struct {
	// HTTP returns the handler to serve at every path.
	HTTP func(Options) http.Handler
	// Stdio serves standard input until it ends.
	Stdio func(Options) error
}

// An Announcement is the line, in JSON, that a server program writes to
// standard error once it is ready.
type Announcement struct {
	// URL is the HTTP endpoint, empty for a server on stdio.
	URL string `json:"url"`
	// Meter is the address of the meter of the process.
	Meter string `json:"meter"`
}

// Main is the main function of a server program. It takes the transport and the
// options from the command line and does not return.
func Main(p Program) {
	era := flag.String("era", string(echo.Modern), "era of the load: modern or session")
	sse := flag.Bool("sse", false, "respond with event streams, where that is a setting")
	validate := flag.Bool("validate", false, "validate arguments, where that is a setting")
	tool := flag.String("tool", echo.Tool, "the only tool that the load calls")
	tools := flag.Int("tools", 0, "number of tools to offer instead of the usual ones")
	wide := flag.Bool("wide", false, "offer tools of 1 KB, each with a schema of its own")
	stdio := flag.Bool("stdio", false, "serve standard input and output instead of HTTP")
	flag.Parse()
	opts := Options{Era: echo.Era(*era), SSE: *sse, Validate: *validate, Tool: *tool, Tools: *tools, Wide: *wide}
	if err := run(p, opts, *stdio); err != nil {
		log.Fatal(err)
	}
	os.Exit(0)
}

func run(p Program, opts Options, stdio bool) error {
	meter, err := net.Listen("tcp", loopback)
	if err != nil {
		return err
	}
	if stdio {
		go serveMeter(meter)
		announce(Announcement{Meter: meter.Addr().String()})
		return p.Stdio(opts)
	}
	return serveHTTP(meter, p.HTTP(opts))
}

// ServeHTTP serves h at every path of a loopback address, with a meter. It announces both, and returns
// only an error.
func ServeHTTP(h http.Handler) error {
	meter, err := net.Listen("tcp", loopback)
	if err != nil {
		return err
	}
	return serveHTTP(meter, h)
}

func serveHTTP(meter net.Listener, h http.Handler) error {
	go serveMeter(meter)
	l, err := net.Listen("tcp", loopback)
	if err != nil {
		return err
	}
	announce(Announcement{
		URL:   fmt.Sprintf("http://%s/mcp", l.Addr()),
		Meter: meter.Addr().String(),
	})
	return http.Serve(l, h)
}

// ServeTLS is ServeHTTP with TLS and the certificate of package httptest, which its clients do not verify.
func ServeTLS(h http.Handler) error {
	meter, err := listenMeter()
	if err != nil {
		return err
	}
	s := httptest.NewTLSServer(h)
	announce(Announcement{URL: s.URL, Meter: meter})
	select {}
}

func announce(a Announcement) {
	line, err := json.Marshal(a)
	if err != nil {
		panic(err) // two strings always encode
	}
	fmt.Fprintf(os.Stderr, "%s\n", line)
}
