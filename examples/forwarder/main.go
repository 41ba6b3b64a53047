// Command forwarder is a host: it serves the tools, prompts and resources of several servers at a
// single HTTP address, to clients of every revision.
//
//	forwarder 'calc=go run ./examples/calc' 'notes=go run ./examples/notes'
//
// It uses only exported packages. Package driver contains the interfaces for such programs.
package main

import (
	"context"
	"log"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"strings"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	h := newHost(log.New(os.Stderr, "", log.LstdFlags))
	defer func() { _ = h.Close() }()
	for _, arg := range os.Args[1:] {
		name, line, ok := strings.Cut(arg, "=")
		command := strings.Fields(line)
		if !ok || len(command) == 0 {
			log.Printf("invalid argument %q: must have the form name=command", arg)
			return
		}
		t := mcp.Command(command[0], command[1:]...)
		t.Prepare = func(cmd *exec.Cmd) error {
			log.Printf("start %s: %s", name, cmd)
			return nil
		}
		if err := h.Add(ctx, name, t); err != nil {
			log.Printf("connect %s: %v", name, err)
			return
		}
	}
	http.Handle("/mcp", mcphttp.NewHandler(h, nil))
	s := &http.Server{Addr: "127.0.0.1:8080", ReadHeaderTimeout: headerTimeout}
	context.AfterFunc(ctx, func() { _ = s.Close() })
	log.Print(s.ListenAndServe())
}
