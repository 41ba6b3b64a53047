// Package rig is the part that every server program of the benchmark shares:
// its flags, its loopback listener, and a meter that reports what the process
// has used so far. The meter answers on a connection of its own and costs
// nothing while nobody asks.
package rig

import (
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"

	"github.com/patchbay-mcp/patchbay/bench/internal/echo"
)

// loopback is the only address a benchmark ever listens on; the system picks
// the port.
const loopback = "127.0.0.1:0"

// Options say which of its faces a server program shows.
type Options struct {
	// Era is the era that the load speaks. A server that serves both at once
	// ignores it.
	Era echo.Era
	// SSE asks for answers as event streams, where that is a setting.
	SSE bool
	// Validate asks for validation of arguments, where that is a setting.
	Validate bool
	// Tool is the one tool that the load calls. Only the limit needs to know.
	Tool string
	// Tools, if not zero, is how many tools the server offers in place of the
	// usual ones, each like echo.Tool.
	Tools int
}

// A Program is one server in its two transports.
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
	// Meter is the address on which the process reports what it has used.
	Meter string `json:"meter"`
}

// Main runs p as the whole program, with the transport and the options taken
// from the command line. It does not return.
func Main(p Program) {
	era := flag.String("era", string(echo.Modern), "era that the load speaks: modern or session")
	sse := flag.Bool("sse", false, "answer with event streams, where that is a setting")
	validate := flag.Bool("validate", false, "validate arguments, where that is a setting")
	tool := flag.String("tool", echo.Tool, "the one tool that the load calls")
	tools := flag.Int("tools", 0, "offer so many tools in place of the usual ones")
	stdio := flag.Bool("stdio", false, "serve standard input and output instead of HTTP")
	flag.Parse()
	opts := Options{Era: echo.Era(*era), SSE: *sse, Validate: *validate, Tool: *tool, Tools: *tools}
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
	go serveMeter(meter)
	if stdio {
		announce(Announcement{Meter: meter.Addr().String()})
		return p.Stdio(opts)
	}
	l, err := net.Listen("tcp", loopback)
	if err != nil {
		return err
	}
	announce(Announcement{
		URL:   fmt.Sprintf("http://%s/mcp", l.Addr()),
		Meter: meter.Addr().String(),
	})
	return http.Serve(l, p.HTTP(opts))
}

func announce(a Announcement) {
	line, err := json.Marshal(a)
	if err != nil {
		panic(err) // two strings always encode
	}
	fmt.Fprintf(os.Stderr, "%s\n", line)
}
