// Command apphost is a host in a browser: it calls a tool of a server, and shows the tool's view on a page of its own.
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

// The view has an origin that is not the host's. Their names differ as well, since cookies know no ports.
const (
	hostAddr, hostOrigin = "localhost:8080", "http://localhost:8080"
	viewAddr, viewOrigin = "127.0.0.1:8081", "http://127.0.0.1:8081"
)

// policy is the host's own. The script in the frame cannot lead it to anywhere else, by frame-src.
const policy = "default-src 'self'; frame-src " + viewOrigin +
	"; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"

//go:embed host.html host.js
var files embed.FS

type host struct {
	apps    *apps.Host
	page    *apps.Page
	result  *mcp.ToolResult
	allowed []string // tools that the user lets the view call

	bridges sync.Map // of *apps.Bridge by their ids: one for each load of the page that is open
}

// allowTool stands for the host's question to the user, who has answered on the command line.
func (h *host) allowTool(_ context.Context, t *mcp.Tool, _ json.RawMessage) error {
	if !slices.Contains(h.allowed, t.Name) {
		return errors.New("the user has not allowed it")
	}
	return nil
}

// events makes a bridge and hands its messages to the script, as long as the page is open.
func (h *host) events(w http.ResponseWriter, r *http.Request) {
	ctx, messages := r.Context(), make(chan json.RawMessage)
	bridge := h.apps.Bridge(h.page, &apps.BridgeOptions{
		Send: func(_ context.Context, m json.RawMessage) error {
			select {
			case messages <- m:
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		},
		AllowTool: h.allowTool,
	})
	// The page is told as soon as it is ready.
	if err := errors.Join(bridge.ToolInput(ctx, nil), bridge.ToolResult(ctx, h.result)); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	id := rand.Text()
	h.bridges.Store(id, bridge)
	defer func() {
		h.bridges.Delete(id)
		_ = bridge.Teardown(ctx, "closed") // ends what the page has asked for; the page itself has gone
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

// say returns a message of the page to its bridge.
func (h *host) say(w http.ResponseWriter, r *http.Request) {
	bridge, ok := h.bridges.Load(r.PathValue("bridge"))
	message, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 4<<20)) // a bridge takes no more
	if !ok || err != nil {
		http.Error(w, "there is no such page, or the message is too large", http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(bridge.(*apps.Bridge).Handle(r.Context(), message)) // a page that has gone needs no answer
}

// handler serves the host's own pages, to those alone who ask by the host's name, and takes messages from them alone.
func (h *host) handler(server, tool string) http.Handler {
	page := template.Must(template.ParseFS(files, "host.html"))
	shown := map[string]string{
		"Server": server, "Tool": tool, "View": viewOrigin, "Sandbox": apps.Sandbox, "Allow": h.page.Allow(),
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET localhost/{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Security-Policy", policy)
		if err := page.Execute(w, shown); err != nil {
			log.Print(err)
		}
	})
	mux.Handle("GET localhost/host.js", http.FileServerFS(files))
	mux.HandleFunc("GET localhost/events", h.events)
	mux.HandleFunc("POST localhost/say/{bridge}", h.say)
	return http.NewCrossOriginProtection().Handler(mux)
}

func run(ctx context.Context, allowed []string, tool string, command []string) error {
	c, err := mcp.Connect(ctx, mcp.Command(command[0], command[1:]...), apps.Declare(nil))
	if err != nil {
		return err
	}
	defer c.Close()
	h := &host{apps: apps.NewHost(c, nil), allowed: allowed}
	if h.page, err = h.apps.Page(ctx, tool); err != nil {
		return err
	}
	if h.page == nil {
		return fmt.Errorf("the tool %q has no view", tool)
	}
	header, err := h.page.Header(&apps.HeaderOptions{Embedder: hostOrigin})
	if err != nil {
		return err
	}
	if h.result, err = c.CallTool(ctx, tool, struct{}{}); err != nil {
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
