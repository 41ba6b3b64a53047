package legacy

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"unique"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
)

// maxDeclared limits the size of the client's capabilities, and of its description. A session keeps
// both, and each of its requests carries them.
const maxDeclared = 16 << 10

// defaultLogLevel is the minimum log level until the client sets one.
const defaultLogLevel = "info"

// defaultInfo replaces missing client or server info, which initialize requires.
const defaultInfo = `{"name":"unnamed","version":"0"}`

// A capabilitySet holds the server's capabilities that decide about the features of a session.
type capabilitySet struct {
	logging   bool
	subscribe bool // to single resources
	tools     bool // listChanged, as the next two
	prompts   bool
	resources bool
}

// Open begins a session with an initialize request, without waiting for the core. If the requested
// revision is unknown, not accepted or without sessions, it chooses the newest accepted revision
// with sessions. [Session.InitializeResponse] returns the response. The session keeps the values of
// ctx but does not end with it.
//
// Spec: basic/lifecycle#version-negotiation
func Open(ctx context.Context, cfg *Config, req *jsonrpc.Message) (*Session, *jsonrpc.Error) {
	p, err := parseInitialize(req.Params)
	if err != nil {
		return nil, err
	}
	rev, err := cfg.negotiate(p.version)
	if err != nil {
		return nil, err
	}
	envelope := unique.Make(sessionEnvelope{
		revision: rev, clientInfo: string(p.clientInfo), capabilities: string(clientCapabilities(rev, p.capabilities)),
		logLevel: defaultLogLevel,
	})
	s := newSession(ctx, cfg, rev)
	s.envelope = envelope
	s.roots.announces = cfg.Changed == nil && declares(p.capabilities, "roots", "listChanged")
	return s, nil
}

// OpenStateless returns a session for the messages of an HTTP request. Its client declared no
// capabilities, and it uses no log level, subscriptions or tasks. The version is the version of the
// header, which must be accepted; without one it is empty, and 2025-03-26 is assumed if it is
// accepted.
//
// Spec: basic/transports#protocol-version-header
func OpenStateless(ctx context.Context, cfg *Config, version string) (*Session, *jsonrpc.Error) {
	rev, err := cfg.negotiate(cmp.Or(version, wire.March2025.String()))
	if err == nil && version != "" && rev.String() != version {
		err = wire.UnsupportedVersion(version, cfg.Revisions)
	}
	if err != nil {
		return nil, err
	}
	s := newSession(ctx, cfg, rev)
	s.hasServer = true
	s.envelope = unique.Make(sessionEnvelope{revision: rev, clientInfo: defaultInfo, capabilities: "{}"})
	return s, nil
}

func newSession(ctx context.Context, cfg *Config, rev wire.Revision) *Session {
	s := &Session{cfg: cfg, rev: rev, calls: cfg.Calls}
	if s.calls == nil {
		s.own.MaxCalls = int32(min(cfg.MaxInFlight, math.MaxInt32))
		s.calls = &s.own
	}
	if ctx.Done() != nil {
		ctx = context.WithoutCancel(ctx)
	}
	s.ctx.Context = ctx
	return s
}

// statelessCapabilities returns the capabilities of a server that need no session.
func statelessCapabilities(capabilities []byte) []byte {
	dst := []byte{'{'}
	for key, value := range jsonscan.Members(capabilities) {
		switch string(key) {
		case "logging", "tasks":
			continue
		case "tools", "prompts", "resources":
			value = emptyResult
		}
		dst = append(appendMember(dst, key, value), ',')
	}
	return closeWith(dst, '}')
}

// initializeParams are the params of initialize. The slices alias the request.
type initializeParams struct {
	version                  string
	capabilities, clientInfo []byte
}

func parseInitialize(params []byte) (p initializeParams, err *jsonrpc.Error) {
	if jsonscan.Kind(params) != '{' {
		return p, invalidParams("params: want an object")
	}
	version, _ := jsonscan.Get(params, "protocolVersion")
	p.capabilities, _ = jsonscan.Get(params, "capabilities")
	p.clientInfo, _ = jsonscan.Get(params, "clientInfo")
	switch {
	case jsonscan.Kind(version) != '"':
		return p, invalidParams("params.protocolVersion: want a string")
	case jsonscan.Kind(p.capabilities) != '{':
		return p, invalidParams("params.capabilities: want an object")
	case len(p.capabilities) > maxDeclared:
		return p, invalidParams("params.capabilities: want at most %d bytes", maxDeclared)
	case jsonscan.Kind(p.clientInfo) != '{':
		return p, invalidParams("params.clientInfo: want an object")
	}
	p.version = jsonscan.GetString(params, "protocolVersion") // a version with a bad escape is unknown
	p.clientInfo, err = boundedInfo(p.clientInfo)
	return p, err
}

// boundedInfo checks the client's description of itself. If it is too long, most likely because of
// icons, only the required members are kept.
func boundedInfo(info []byte) ([]byte, *jsonrpc.Error) {
	name, _ := jsonscan.Get(info, "name")
	version, _ := jsonscan.Get(info, "version")
	if jsonscan.Kind(name) != '"' || jsonscan.Kind(version) != '"' {
		return nil, invalidParams("params.clientInfo: want strings name and version")
	}
	if len(info) <= maxDeclared {
		return info, nil
	}
	short := appendMember([]byte{'{'}, []byte("name"), name)
	short = append(appendMember(append(short, ','), []byte("version"), version), '}')
	if len(short) > maxDeclared {
		return nil, invalidParams("params.clientInfo: want at most %d bytes", maxDeclared)
	}
	return short, nil
}

// InitializeResponse asks the core for the server's description and capabilities, and returns the
// response to the initialize request with the given id. It must be called once.
//
// Spec: basic/lifecycle#initialization
func (s *Session) InitializeResponse(ctx context.Context, id jsonrpc.ID) *jsonrpc.Message {
	var found capabilitySet
	defer func() { s.setServer(found) }()
	discard := func(context.Context, string, json.RawMessage) error { return nil }
	discovered, _, err := s.serve(ctx, nil, &request{id: id, method: wire.MethodDiscover}, nil, discard)
	if err != nil {
		return &jsonrpc.Message{ID: id, Error: projectError(s.rev, wire.MethodInitialize, err)}
	}
	capabilities, _ := jsonscan.Get(discovered, "capabilities")
	capabilities = projectCapabilities(s.rev, capabilities)
	if s.cfg.Stateless {
		capabilities = statelessCapabilities(capabilities)
	}
	found = parseCapabilities(capabilities)

	result := appendMember([]byte{'{'}, []byte("protocolVersion"), jsonscan.AppendQuote(nil, s.rev.String()))
	result = appendMember(append(result, ','), []byte("capabilities"), capabilities)
	info := projectImplementation(s.rev, serverInfo(discovered))
	result = appendMember(append(result, ','), []byte("serverInfo"), info)
	if instructions, ok := jsonscan.Get(discovered, "instructions"); ok && jsonscan.Kind(instructions) == '"' {
		result = appendMember(append(result, ','), []byte("instructions"), instructions)
	}
	return &jsonrpc.Message{ID: id, Result: append(result, '}')}
}

func serverInfo(discovered []byte) json.RawMessage {
	meta, _ := jsonscan.Get(discovered, "_meta")
	if info, _ := jsonscan.Get(meta, wire.MetaServerInfo); jsonscan.Kind(info) == '{' {
		return info
	}
	return json.RawMessage(defaultInfo)
}

func parseCapabilities(capabilities []byte) capabilitySet {
	_, logging := jsonscan.Get(capabilities, "logging")
	return capabilitySet{
		logging:   logging,
		subscribe: declares(capabilities, "resources", "subscribe"),
		tools:     declares(capabilities, "tools", "listChanged"),
		prompts:   declares(capabilities, "prompts", "listChanged"),
		resources: declares(capabilities, "resources", "listChanged"),
	}
}

func declares(capabilities []byte, name, flag string) bool {
	capability, _ := jsonscan.Get(capabilities, name)
	return wants(capability, flag)
}

// setServer sets the server's capabilities and wakes the goroutines that wait for them.
func (s *Session) setServer(found capabilitySet) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.server, s.hasServer = found, true
	if s.serverKnown != nil {
		close(s.serverKnown)
		s.serverKnown = nil
	}
}

// awaitServer waits until the server's capabilities are known. It fails when ctx ends first.
func (s *Session) awaitServer(ctx context.Context) (capabilitySet, error) {
	s.mu.Lock()
	if s.hasServer {
		defer s.mu.Unlock()
		return s.server, nil
	}
	if s.serverKnown == nil {
		s.serverKnown = make(chan struct{})
	}
	described := s.serverKnown
	s.mu.Unlock()
	select {
	case <-described:
		return s.server, nil
	case <-ctx.Done():
		return capabilitySet{}, context.Cause(ctx)
	}
}

func invalidRequest(message string) *jsonrpc.Error {
	return &jsonrpc.Error{Code: jsonrpc.CodeInvalidRequest, Message: message}
}

func invalidParams(format string, args ...any) *jsonrpc.Error {
	return &jsonrpc.Error{Code: wire.CodeInvalidParams, Message: fmt.Sprintf(format, args...)}
}

// A sessionEnvelope is the envelope of every request of a session. initialize sets it, and
// logging/setLevel its log level.
type sessionEnvelope struct {
	revision                 wire.Revision
	clientInfo, capabilities string // JSON objects
	logLevel                 string
}

// envelopeKeys are the members of `_meta` that a session sets.
var envelopeKeys = []string{
	wire.MetaProtocolVersion, wire.MetaClientInfo, wire.MetaClientCapabilities, wire.MetaLogLevel,
}

// A sharedEnvelope is an envelope that equal sessions share, since many clients are the same
// program.
type sharedEnvelope = unique.Handle[sessionEnvelope]

// size returns an estimate of how many bytes appendMembers appends.
func (e *sessionEnvelope) size() int {
	const keys = len(wire.MetaProtocolVersion + wire.MetaClientInfo + wire.MetaClientCapabilities + wire.MetaLogLevel)
	return keys + len(e.clientInfo) + len(e.capabilities) + 64
}

// appendMembers appends the members of a modern request's `_meta`, without braces, and sets the
// fields of env.
//
// Spec: basic/index#meta (2026-07-28)
func (e *sessionEnvelope) appendMembers(dst []byte, env *wire.Envelope) []byte {
	env.Revision, env.VersionText, env.HasVersion = e.revision, e.revision.String(), true
	dst = append(append(dst, `"`+wire.MetaProtocolVersion+`":"`...), env.VersionText...)
	dst = append(append(dst, `","`+wire.MetaClientInfo+`":`...), e.clientInfo...)
	env.ClientInfo = last(dst, len(e.clientInfo))
	dst = append(append(dst, `,"`+wire.MetaClientCapabilities+`":`...), e.capabilities...)
	env.Capabilities = last(dst, len(e.capabilities))
	if e.logLevel == "" { // of a stateless session
		return dst
	}
	env.LogLevel = e.logLevel
	dst = append(append(dst, `,"`+wire.MetaLogLevel+`":"`...), e.logLevel...)
	return append(dst, '"')
}

// last returns the last n bytes of b.
func last(b []byte, n int) []byte { return b[len(b)-n : len(b) : len(b)] }

// A request is a request of the client, as it was sent.
type request struct {
	id     jsonrpc.ID
	method string
	params json.RawMessage
}

// retryParams are the params that a retried request contains in addition: input responses, an
// object, and a request state. Absent params are nil.
type retryParams struct{ inputResponses, requestState json.RawMessage }

func (r *retryParams) size() int {
	if r == nil {
		return 0
	}
	return len(`"inputResponses":,"requestState":,`) + len(r.inputResponses) + len(r.requestState)
}

// append appends the members that are there, each followed by a comma.
func (r *retryParams) append(dst []byte, subject *wire.SubjectIndex) []byte {
	if r == nil {
		return dst
	}
	add := func(key string, value []byte) {
		if value != nil {
			dst = appendMember(dst, []byte(key), value)
			subject.Set([]byte(key), value, len(dst)-len(value))
			dst = append(dst, ',')
		}
	}
	add("inputResponses", r.inputResponses)
	add("requestState", r.requestState)
	return dst
}

// serve lets the core serve a request of the client in the modern form. retry holds the additional
// members of a retried request; may be nil.
func (s *Session) serve(ctx context.Context, dst []byte, r *request,
	retry *retryParams, notify Notify) (_ []byte, isProjected bool, _ *jsonrpc.Error) {
	req, err := s.modernRequest(r, retry)
	if err != nil {
		return nil, false, err
	}
	return s.cfg.Core.Serve(ctx, dst, req, notify)
}

// modernRequest returns a client's request with the members of retry and the envelope of the
// session. It drops members that only the modern era defines: a client of a session cannot mean
// them. The values of the envelope alias the new params.
func (s *Session) modernRequest(r *request, retry *retryParams) (wire.Request, *jsonrpc.Error) {
	req := wire.Request{ID: r.id, Method: r.method}
	if r.params != nil && jsonscan.Kind(r.params) != '{' {
		return req, invalidParams("params: want an object")
	}
	s.mu.Lock()
	envelope := s.envelope.Value()
	s.mu.Unlock()
	dst := make([]byte, 0, len(`{,"_meta":{}}`)+envelope.size()+len(r.params)+retry.size())
	dst = append(dst, '{')
	var meta []byte
	var subject wire.SubjectIndex
	d := jsonscan.Descend(r.params) // no closure of an iterator: this runs for each request
	d.Into('{')
	for key, ok := d.Key(); ok; key, ok = d.Key() {
		value := d.Value()
		switch string(key) {
		case "_meta":
			if k := jsonscan.Kind(value); k != '{' && k != 'n' {
				return req, invalidParams("params._meta: want an object")
			}
			meta = value // null contains no members
		case "inputResponses", "requestState":
		default:
			dst = appendMember(dst, key, value)
			subject.Set(key, value, len(dst)-len(value))
			dst = append(dst, ',')
		}
	}
	dst = retry.append(dst, &subject)
	dst = append(dst, `"_meta":`...)
	at := len(dst)
	dst = envelope.appendMembers(append(dst, '{'), &req.Envelope)
	d = jsonscan.Descend(meta)
	d.Into('{')
	for key, ok := d.Key(); ok; key, ok = d.Key() {
		value := d.Value()
		if isOneOf(key, envelopeKeys) {
			continue
		}
		dst = appendMember(append(dst, ','), key, value)
		if err := req.Envelope.SetMember(key, last(dst, len(value))); err != nil {
			return req, err
		}
	}
	dst = append(dst, '}')
	req.Envelope.Meta = last(dst, len(dst)-at)
	dst = append(dst, '}')
	req.Params = dst
	req.Envelope.Describe(req.Params, subject)
	return req, nil
}
