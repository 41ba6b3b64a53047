package conformance_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os/exec"

	mcpgoclient "github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/client/transport"
	mcpgo "github.com/mark3labs/mcp-go/mcp"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	gosdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// runGoClient runs the exercise with a client of another Go SDK.
func runGoClient(ctx context.Context, plan gatewayPlan,
	connect func(context.Context, gatewayPlan, *goHost) (goClient, error)) (*gatewayReport, error) {
	h := &goHost{onProgress: map[string]func(progress, total float64){}, root: plan.Root}
	c, err := connect(ctx, plan, h)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	defer c.close()
	return (&gatewayExercise{ctx: ctx, plan: plan, c: c, h: h}).run()
}

// errorCode returns the code of an error of either SDK.
func errorCode(err error) int {
	var e *jsonrpc.Error
	switch {
	case errors.As(err, &e):
		return int(e.Code)
	case errors.Is(err, mcpgo.ErrInvalidParams):
		return mcpgo.INVALID_PARAMS
	case errors.Is(err, mcpgo.ErrResourceNotFound):
		return mcpgo.RESOURCE_NOT_FOUND
	}
	return 0
}

// keyed adds the key of the gateway to requests.
type keyed string

func (k keyed) RoundTrip(r *http.Request) (*http.Response, error) {
	if k != "" {
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", "Bearer "+string(k))
	}
	return http.DefaultTransport.RoundTrip(r)
}

// A goSDKClient is the client of the official Go SDK.
type goSDKClient struct{ s *gosdk.ClientSession }

// connectGoSDK returns a function that connects the client of the official Go SDK with a revision,
// or the newest.
func connectGoSDK(revision string) func(context.Context, gatewayPlan, *goHost) (goClient, error) {
	return func(ctx context.Context, plan gatewayPlan, h *goHost) (goClient, error) {
		c := gosdk.NewClient(&gosdk.Implementation{Name: "gosdk", Version: "1"}, goSDKOptions(h))
		c.AddRoots(&gosdk.Root{URI: plan.Root, Name: "area"})
		var t gosdk.Transport = &gosdk.StreamableClientTransport{Endpoint: plan.URL,
			HTTPClient: &http.Client{Transport: keyed(plan.Key)}}
		if plan.Kind == "stdio" {
			t = &gosdk.CommandTransport{Command: exec.Command(plan.Command[0], plan.Command[1:]...)}
		}
		s, err := c.Connect(ctx, t, &gosdk.ClientSessionOptions{ProtocolVersion: revision})
		if err != nil {
			return nil, err
		}
		return &goSDKClient{s}, nil
	}
}

func goSDKOptions(h *goHost) *gosdk.ClientOptions {
	return &gosdk.ClientOptions{
		Capabilities: &gosdk.ClientCapabilities{
			RootsV2: &gosdk.RootCapabilities{ListChanged: true},
			Elicitation: &gosdk.ElicitationCapabilities{Form: &gosdk.FormElicitationCapabilities{},
				URL: &gosdk.URLElicitationCapabilities{}},
		},
		ElicitationHandler: func(_ context.Context, r *gosdk.ElicitRequest) (*gosdk.ElicitResult, error) {
			p := r.Params
			return &gosdk.ElicitResult{Action: "accept", Content: h.elicit(p.Mode, p.Message, p.URL, p.RequestedSchema)}, nil
		},
		CreateMessageHandler: func(context.Context, *gosdk.CreateMessageRequest) (*gosdk.CreateMessageResult, error) {
			h.note(&h.asked, "sampling")
			return &gosdk.CreateMessageResult{Model: "test-model", Role: "assistant", StopReason: "endTurn",
				Content: &gosdk.TextContent{Text: "a summary"}}, nil
		},
		LoggingMessageHandler: func(_ context.Context, r *gosdk.LoggingMessageRequest) {
			h.note(&h.logs, fmt.Sprint(r.Params.Level, r.Params.Logger, r.Params.Data))
		},
		ProgressNotificationHandler: func(_ context.Context, r *gosdk.ProgressNotificationClientRequest) {
			h.progress(r.Params.ProgressToken, r.Params.Progress, r.Params.Total)
		},
		ResourceListChangedHandler: func(context.Context, *gosdk.ResourceListChangedRequest) { h.changed() },
		ResourceUpdatedHandler: func(_ context.Context, r *gosdk.ResourceUpdatedNotificationRequest) {
			h.note(&h.updated, r.Params.URI)
		},
	}
}

func (c *goSDKClient) peer() (revision, server, instructions string) {
	r := c.s.InitializeResult()
	return r.ProtocolVersion, r.ServerInfo.Name, r.Instructions
}

func (c *goSDKClient) do(ctx context.Context, method string, params any) (any, error) {
	switch method {
	case "logging/setLevel":
		return nil, send(params, func(p *gosdk.SetLoggingLevelParams) error { return c.s.SetLoggingLevel(ctx, p) })
	case "tools/list":
		return ask(ctx, params, c.s.ListTools)
	case "tools/call":
		return ask(ctx, params, c.s.CallTool)
	case "prompts/list":
		return ask(ctx, params, c.s.ListPrompts)
	case "prompts/get":
		return ask(ctx, params, c.s.GetPrompt)
	case "resources/list":
		return ask(ctx, params, c.s.ListResources)
	case "resources/templates/list":
		return ask(ctx, params, c.s.ListResourceTemplates)
	case "resources/read":
		return ask(ctx, params, c.s.ReadResource)
	case "completion/complete":
		return ask(ctx, params, c.s.Complete)
	}
	return nil, fmt.Errorf("unknown method %q", method)
}

func (c *goSDKClient) watch(ctx context.Context, uri string) error {
	return c.s.Subscribe(ctx, &gosdk.SubscribeParams{URI: uri})
}

func (c *goSDKClient) close() { _ = c.s.Close() }

// ask calls a method of an SDK with params of another type of the same JSON form.
func ask[P, R any](ctx context.Context, params any, f func(context.Context, *P) (R, error)) (r any, err error) {
	err = send(params, func(p *P) (err error) {
		r, err = f(ctx, p)
		return err
	})
	return r, err
}

func send[P any](params any, f func(*P) error) error {
	var p P
	if err := convert(params, &p); err != nil {
		return err
	}
	return f(&p)
}

// An mcpGoClient is the client of mcp-go.
type mcpGoClient struct {
	c      *mcpgoclient.Client
	server *mcpgo.InitializeResult
	h      *goHost
}

// connectMCPGo returns a function that connects the client of mcp-go in the session era, or the
// newest.
func connectMCPGo(session bool) func(context.Context, gatewayPlan, *goHost) (goClient, error) {
	return func(ctx context.Context, plan gatewayPlan, h *goHost) (goClient, error) {
		t, err := mcpGoTransport(plan, session)
		if err != nil {
			return nil, err
		}
		caps := mcpgo.ClientCapabilities{Elicitation: &mcpgo.ElicitationCapability{Form: &struct{}{}, URL: &struct{}{}}}
		opts := []mcpgoclient.ClientOption{
			mcpgoclient.WithClientCapabilities(caps), mcpgoclient.WithElicitationHandler(mcpGoUser{h}),
			mcpgoclient.WithSamplingHandler(mcpGoUser{h}), mcpgoclient.WithRootsHandler(mcpGoUser{h}),
		}
		if session {
			opts = append(opts, mcpgoclient.WithProtocolVersion("2025-11-25"))
		}
		c := &mcpGoClient{c: mcpgoclient.NewClient(t, opts...), h: h}
		c.c.OnNotification(func(n mcpgo.JSONRPCNotification) { h.notified(n.Method, n.Params) })
		if err := c.c.Start(ctx); err != nil {
			return nil, err
		}
		r := mcpgo.InitializeRequest{}
		r.Params.ClientInfo = mcpgo.Implementation{Name: "mcpgo", Version: "1"}
		r.Params.ProtocolVersion = mcpgo.LATEST_PROTOCOL_VERSION
		if session {
			r.Params.ProtocolVersion = "2025-11-25"
		}
		r.Params.Capabilities = caps
		c.server, err = c.c.Initialize(ctx, r)
		if err != nil {
			_ = c.c.Close()
		}
		return c, err
	}
}

func mcpGoTransport(plan gatewayPlan, session bool) (transport.Interface, error) {
	if plan.Kind == "stdio" {
		return transport.NewStdio(plan.Command[0], nil, plan.Command[1:]...), nil
	}
	opts := []transport.StreamableHTTPCOption{
		transport.WithHTTPBasicClient(&http.Client{Transport: keyed(plan.Key)}),
	}
	if session {
		opts = append(opts, transport.WithContinuousListening())
	}
	return transport.NewStreamableHTTP(plan.URL, opts...)
}

// notified handles a notification of mcp-go.
func (h *goHost) notified(method string, params mcpgo.NotificationParams) {
	var p struct {
		URI             string
		Level           string
		Data            json.RawMessage
		ProgressToken   any
		Progress, Total float64
	}
	if convert(params, &p) != nil {
		return
	}
	switch method {
	case "notifications/message":
		h.note(&h.logs, p.Level+string(p.Data))
	case "notifications/progress":
		h.progress(p.ProgressToken, p.Progress, p.Total)
	case "notifications/resources/updated":
		h.note(&h.updated, p.URI)
	case "notifications/resources/list_changed":
		h.changed()
	case "notifications/subscriptions/acknowledged":
		h.acks.Add(1)
	}
}

// An mcpGoUser is the user and the model of an mcpGoClient.
type mcpGoUser struct{ h *goHost }

func (u mcpGoUser) Elicit(_ context.Context, r mcpgo.ElicitationRequest) (*mcpgo.ElicitationResult, error) {
	p := r.Params
	result := &mcpgo.ElicitationResult{}
	result.Action = mcpgo.ElicitationResponseActionAccept
	if content := u.h.elicit(p.Mode, p.Message, p.URL, p.RequestedSchema); content != nil {
		result.Content = content
	}
	return result, nil
}

func (u mcpGoUser) CreateMessage(context.Context, mcpgo.CreateMessageRequest) (*mcpgo.CreateMessageResult, error) {
	u.h.note(&u.h.asked, "sampling")
	return &mcpgo.CreateMessageResult{Model: "test-model", StopReason: "endTurn", SamplingMessage: mcpgo.SamplingMessage{
		Role: mcpgo.RoleAssistant, Content: mcpgo.NewTextContent("a summary")}}, nil
}

func (u mcpGoUser) ListRoots(context.Context, mcpgo.ListRootsRequest) (*mcpgo.ListRootsResult, error) {
	return &mcpgo.ListRootsResult{Roots: []mcpgo.Root{{URI: u.h.root, Name: "area"}}}, nil
}

func (c *mcpGoClient) peer() (revision, server, instructions string) {
	return c.c.ProtocolVersion(), c.server.ServerInfo.Name, c.server.Instructions
}

func (c *mcpGoClient) do(ctx context.Context, method string, params any) (any, error) {
	in := map[string]any{"params": params, "method": method}
	switch method {
	case "logging/setLevel":
		return nil, send(in, func(r *mcpgo.SetLevelRequest) error { return c.c.SetLevel(ctx, *r) })
	case "tools/list":
		return ask(ctx, in, byValue(c.c.ListTools))
	case "tools/call":
		return ask(ctx, in, byValue(c.c.CallTool))
	case "prompts/list":
		return ask(ctx, in, byValue(c.c.ListPrompts))
	case "prompts/get":
		return ask(ctx, in, byValue(c.c.GetPrompt))
	case "resources/list":
		return ask(ctx, in, byValue(c.c.ListResources))
	case "resources/templates/list":
		return ask(ctx, in, byValue(c.c.ListResourceTemplates))
	case "resources/read":
		return ask(ctx, in, byValue(c.c.ReadResource))
	case "completion/complete":
		return ask(ctx, in, byValue(c.c.Complete))
	}
	return nil, fmt.Errorf("unknown method %q", method)
}

func byValue[P, R any](f func(context.Context, P) (R, error)) func(context.Context, *P) (R, error) {
	return func(ctx context.Context, p *P) (R, error) { return f(ctx, *p) }
}

func (c *mcpGoClient) watch(ctx context.Context, uri string) error {
	if c.c.ProtocolVersion() < "2026-07-28" {
		r := mcpgo.SubscribeRequest{}
		r.Params.URI = uri
		return c.c.Subscribe(ctx, r)
	}
	before := c.h.acks.Load()
	_, err := c.c.ListenAsync(ctx, mcpgo.SubscriptionFilter{ResourceSubscriptions: []string{uri},
		ResourcesListChanged: true}, nil)
	until(ctx, func() bool { return c.h.acks.Load() > before })
	return err
}

func (c *mcpGoClient) close() { _ = c.c.Close() }
