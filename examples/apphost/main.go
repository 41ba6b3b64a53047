// Command apphost is a host for MCP Apps: it shows the view of a tool in a browser.
//
//	go run ./examples/apphost -allow tick time go run ./examples/app
package main

import (
	"context"
	"crypto/rand"
	"embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"html/template"
	"io"
	"log"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/patchbay-mcp/patchbay/ext/apps"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// The view has another origin than the host. The host names differ, because cookies ignore ports.
const (
	hostAddr, hostOrigin = "localhost:8080", "http://localhost:8080"
	viewAddr, viewOrigin = "127.0.0.1:8081", "http://127.0.0.1:8081"
)

// policy is that of the host's page. By frame-src the view cannot navigate its frame elsewhere.
const policy = "default-src 'self'; frame-src " + viewOrigin +
	"; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"

//go:embed host.html host.js
var files embed.FS

type host struct {
	apps    *apps.Host
	page    *apps.Page
	result  *mcp.CallToolResult
	allowed []string // tools that the user lets the view call

	bridges sync.Map // of *apps.Bridge by id: one for each open page
}

// events creates a bridge and sends its messages to the script until the page is closed.
func (h *host) events(w http.ResponseWriter, r *http.Request) {
	ctx, messages := r.Context(), make(chan json.RawMessage)
	bridge := h.apps.Bridge(h.page, &apps.BridgeOptions{
		Send: func(_ context.Context, m json.RawMessage) error {
			select {
			case messages <- m:
			case <-ctx.Done():
			}
			return context.Cause(ctx)
		},
		AllowTool: func(_ context.Context, t *mcp.Tool, _ json.RawMessage) error { // a real host asks the user
			if slices.Contains(h.allowed, t.Name) {
				return nil
			}
			return errors.New("not allowed on the command line")
		},
	})
	// The bridge queues these until the page is ready.
	if err := errors.Join(bridge.ToolInput(ctx, nil), bridge.ToolResult(ctx, h.result)); err != nil {
		log.Print(err)
	}
	id := rand.Text()
	h.bridges.Store(id, bridge)
	defer func() {
		h.bridges.Delete(id)
		_ = bridge.Teardown(ctx, "closed") // cancels the page's requests
	}()
	w.Header().Set("Content-Type", "text/event-stream")
	fmt.Fprintf(w, "event: bridge\ndata: %s\n\n", id)
	for http.NewResponseController(w).Flush() == nil {
		select {
		case m := <-messages:
			fmt.Fprintf(w, "data: %s\n\n", m)
		case <-ctx.Done():
			return
		}
	}
}

// message passes a message of the page to its bridge.
func (h *host) message(w http.ResponseWriter, r *http.Request) {
	bridge, ok := h.bridges.Load(r.PathValue("bridge"))
	raw, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 4<<20)) // the limit of a bridge
	if !ok || err != nil {
		http.Error(w, "unknown page, or the message is too large", http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(bridge.(*apps.Bridge).Handle(r.Context(), raw))
}

// handler serves the host's page for its own host name, and accepts messages from that page only.
func (h *host) handler(server, tool string) http.Handler {
	page := template.Must(template.ParseFS(files, "host.html"))
	data := map[string]string{"Server": server, "Tool": tool, "View": viewOrigin, "Sandbox": apps.Sandbox,
		"Allow": h.page.Allow()}
	mux := http.NewServeMux()
	mux.HandleFunc("GET localhost/{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Security-Policy", policy)
		_ = page.Execute(w, data) // the connection is lost
	})
	mux.Handle("GET localhost/host.js", http.FileServerFS(files))
	mux.HandleFunc("GET localhost/events", h.events)
	mux.HandleFunc("POST localhost/messages/{bridge}", h.message)
	return http.NewCrossOriginProtection().Handler(mux)
}

func run(ctx context.Context, allowed []string, tool string, command []string) error {
	c, err := mcp.Connect(ctx, mcp.Command(command[0], command[1:]...), apps.Declare(nil))
	if err != nil {
		return err
	}
	defer c.Close()
	h := &host{apps: apps.NewHost(c, nil), allowed: allowed}
	if h.page, err = h.apps.Page(ctx, tool); err != nil || h.page == nil {
		return errors.Join(err, fmt.Errorf("no view of tool %q", tool))
	}
	header, err := h.page.Header(&apps.HeaderOptions{Embedder: hostOrigin})
	if err == nil {
		h.result, err = c.CallTool(ctx, tool, struct{}{})
	}
	if err != nil {
		return err
	}
	view := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		maps.Copy(w.Header(), header)
		_, _ = io.WriteString(w, h.page.HTML)
	})
	go func() { log.Fatal(http.ListenAndServe(viewAddr, view)) }()
	log.Print("open ", hostOrigin)
	return http.ListenAndServe(hostAddr, h.handler(strings.Join(command, " "), tool))
}

func main() {
	allow := flag.String("allow", "", "the `tools` that the view may call, separated by commas")
	flag.Parse()
	if flag.NArg() < 2 {
		log.Fatal("usage: apphost [-allow tools] tool command [argument ...]")
	}
	log.Fatal(run(context.Background(), strings.Split(*allow, ","), flag.Arg(0), flag.Args()[1:]))
}
