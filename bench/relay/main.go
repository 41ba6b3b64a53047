// Command relay is a program between the load and a server, in one of several
// kinds, for the workloads of gateways.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"net/http"
	"runtime"

	"github.com/patchbay-mcp/patchbay/bench/internal/echo"
	"github.com/patchbay-mcp/patchbay/bench/internal/gateway"
	"github.com/patchbay-mcp/patchbay/bench/internal/load"
	"github.com/patchbay-mcp/patchbay/bench/internal/patchbay"
	"github.com/patchbay-mcp/patchbay/bench/internal/rig"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

// options are the values of the command-line flags.
type options struct {
	kind    string
	url     string   // of the server
	command []string // that starts the server on stdio, if url is empty
	era     echo.Era // of the server
	tool    string
	tools   int // in all servers
	servers int // with tools, else one
	callers int // principals that the gateway requires, if not zero
	shared  bool
	extra   string
	dir     string
}

// reserve is counted as live memory, so that the garbage collector runs less often. Its size is the
// reserve of `patchbay gateway`. All programs have it: a floor without it would pay for collections
// that its competitor avoids.
var reserve = make([]byte, 32<<20)

func main() {
	var o options
	flag.StringVar(&o.kind, "kind", "",
		"direct, bare-relay, reverse-proxy, reverse-proxy-pool, line-relay, sdk or patchbay")
	flag.StringVar(&o.url, "url", "", "endpoint of the server; without it, the arguments start one on stdio")
	era := flag.String("era", string(echo.Modern), "era of the server: modern or session")
	flag.StringVar(&o.tool, "tool", echo.Tool, "the tool that the load calls")
	flag.IntVar(&o.tools, "tools", 0, "number of tools of servers in this process, in place of the servers at -url")
	flag.IntVar(&o.servers, "servers", 1, "number of servers")
	flag.IntVar(&o.callers, "callers", 0,
		"principals of patchbay, each with its token; without them, there is no authorization")
	flag.BoolVar(&o.shared, "shared", false, "principals share the connections to the servers")
	flag.StringVar(&o.extra, "extra", "",
		"what patchbay does besides: policy-200, policy-200-all, records, pins or pins-and-records")
	flag.StringVar(&o.dir, "dir", "", "folder for files of extra")
	flag.Parse()
	o.era, o.command = echo.Era(*era), flag.Args()
	h, err := o.handler()
	if err != nil {
		log.Fatal(err)
	}
	err = rig.ServeHTTP(h)
	runtime.KeepAlive(reserve)
	log.Fatal(err)
}

func (o options) handler() (http.Handler, error) {
	switch o.kind {
	case "direct":
		return mcphttp.NewHandler(o.server(), nil), nil
	case "bare-relay":
		return newBareRelay(o.url), nil
	case "reverse-proxy":
		return newReverseProxy(o.url, nil)
	case "reverse-proxy-pool":
		return newReverseProxy(o.url, new(bufferPool))
	case "line-relay":
		return newLineRelay(o.command)
	case "sdk":
		return o.sdk()
	case "patchbay":
		servers := gateway.Servers{N: o.servers, Era: o.era, URL: o.url, Command: o.command, Shared: o.shared,
			Extra: gateway.Extra(o.extra), Dir: o.dir}
		if o.tools > 0 {
			servers.Server = func() *mcp.Server { return patchbay.NewLister(o.tools / o.servers) }
		}
		if o.callers > 0 {
			return gateway.Protected(servers, o.callers, load.Token)
		}
		view, err := gateway.View(servers)
		return mcphttp.NewHandler(view, nil), err
	}
	return nil, fmt.Errorf("unknown kind %q", o.kind)
}

// server returns the server itself.
func (o options) server() *mcp.Server {
	switch {
	case o.tools > 0:
		return patchbay.NewGatewayLister(o.servers, o.tools)
	case o.tool == echo.AskTool:
		return patchbay.NewAsker()
	}
	return patchbay.NewServer()
}

// sdk returns a server whose tool calls the server behind it with a client.
func (o options) sdk() (http.Handler, error) {
	c, err := mcp.Connect(context.Background(), mcp.Command(o.command[0], o.command[1:]...), &mcp.ClientOptions{Revision: o.era.Revision()})
	if err != nil {
		return nil, err
	}
	s := mcp.NewServer("sdk", "1.0.0", nil)
	mcp.AddTool(s, &mcp.Tool{Name: echo.Tool, Description: echo.ToolDescription},
		func(ctx context.Context, in echo.In) (string, error) {
			return mcp.CallTool[string](ctx, c, echo.Tool, map[string]any{"message": in.Message})
		})
	return mcphttp.NewHandler(s, nil), nil
}
