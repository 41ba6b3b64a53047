// Command client is the client that the official conformance suites test. A suite starts it once
// for every scenario, with the URL of a server as the last argument and the name of the scenario in
// the environment.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

// timeout is shorter than the timeout of the suites, which do not report why a client was killed.
const timeout = 20 * time.Second

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run runs the scenario. With -pin it uses the revision that the suite passes; otherwise it
// negotiates the revision, as hosts do.
func run(args []string) error {
	opts := &mcp.ClientOptions{
		Info:   mcp.Implementation{Name: "patchbay-everything-client", Version: "1.0.0"},
		Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	if len(args) == 2 && args[0] == "-pin" {
		opts.Revision = os.Getenv("MCP_CONFORMANCE_PROTOCOL_VERSION")
		args = args[1:]
	}
	if len(args) != 1 {
		return fmt.Errorf("want [-pin] URL, got %q", args)
	}
	name := cmp.Or(os.Getenv("MCP_CONFORMANCE_SCENARIO"), "initialize")
	s, ok := scenarios[name]
	if !ok {
		s, ok = authScenarios[name]
	}
	if !ok {
		return fmt.Errorf("unknown scenario %q", name)
	}
	opts.Elicit = s.elicit
	revision, err := s.run(args[0], opts)
	if s.isExpectedError != nil {
		err = checkRejection(err, s.isExpectedError)
	}
	if err == nil {
		fmt.Println("passed", name, revision)
	}
	return err
}

// run runs the scenario against a server and returns the revision that was used.
func (s *scenario) run(endpoint string, opts *mcp.ClientOptions) (revision string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	transport := &mcphttp.TransportOptions{Logger: opts.Logger}
	if s.auth != nil {
		authorization, err := newAuthorization(endpoint, s.auth, opts.Logger)
		if err != nil {
			return "", err
		}
		transport.Client = &http.Client{Transport: authorization}
	}
	c, err := mcp.Connect(ctx, mcphttp.NewTransport(endpoint, transport), opts)
	if err != nil {
		return "", err
	}
	return c.Revision(), errors.Join(s.steps(ctx, c), c.Close())
}
