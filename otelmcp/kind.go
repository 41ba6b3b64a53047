package otelmcp

import (
	"context"
	"errors"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"unicode/utf8"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

// Peers choose names, methods and codes. These limits bound what their choices cost: memory here, and
// time series of a metrics database, which are expensive. The SDK of OpenTelemetry stops at 2,000 series
// of an instrument by default.
const (
	maxTargets = 1_000 // tools and prompts of a role that are labels
	maxMethods = 100   // methods of a role that extensions define
	maxCodes   = 16    // error codes of a role, and of a server of a host, that the protocol does not define
	maxKinds   = 4_000 // of a role: targets with different revisions, servers and versions of HTTP
	// maxLabel is the length of a label, in bytes. The protocol recommends at most 128 characters for
	// the names of tools.
	maxLabel = 256
)

// A kindKey contains the labels that requests share, besides errors.
type kindKey struct {
	role                                           role
	method, target, revision                       string
	network, protocol, protocolVersion, serverHost string
	hosted                                         string // the server of a host that the request is for
}

func newKindKey(ctx context.Context, r role, req *mcp.Request, via *driver.Via) kindKey {
	k := kindKey{role: r, method: req.Method, revision: req.Revision()}
	if r == client || questions[req.Method] { // in memory, the server sees the values of the client
		k.hosted = host.ServerFrom(ctx)
	}
	if k.method == methodDiscover && r == server && driver.HasSessions(k.revision) {
		k.method = methodInitialize // the method of the request that arrived
	}
	if r != taskRun {
		k.network, k.protocol, k.protocolVersion = via.Network, via.Protocol, via.ProtocolVersion
	}
	if r == client {
		k.serverHost = via.Peer
	}
	return k
}

// A kind holds the data that requests with the same labels share. Only its field failed changes.
type kind struct {
	kindKey
	name       string                  // of spans
	start      []trace.SpanStartOption // of spans
	attributes []attribute.KeyValue    // of spans
	labels     []attribute.KeyValue    // of metrics
	succeeded  []metric.RecordOption

	mu     sync.RWMutex // guards the field below
	failed map[string][]metric.RecordOption
}

// kinds holds the kinds seen so far, up to the limits.
type kinds struct {
	mu    sync.RWMutex // guards the fields below
	byKey map[kindKey]*kind
	size  [roles]int
	// targets, methods and codes are the labels of a role that peers can choose.
	targets, methods [roles]map[string]bool
	codes            map[codesKey]*map[string]bool
}

// A codesKey groups codes that are counted together: a server must not use up the codes of another.
type codesKey struct {
	role
	hosted string
}

// codesOf returns the codes of a role and a server of a host.
func (s *kinds) codesOf(r role, hosted string) *map[string]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := codesKey{r, hosted}
	if s.codes[key] == nil {
		if s.codes == nil {
			s.codes = map[codesKey]*map[string]bool{}
		}
		s.codes[key] = &map[string]bool{}
	}
	return s.codes[key]
}

// takesTarget reports whether a method uses a tool or prompt.
func takesTarget(method string) bool { return method == methodCall || method == methodPrompt }

// begin returns the kind of a request that begins, or nil if its target or method is not known to
// exist.
func (s *kinds) begin(ctx context.Context, r role, req *mcp.Request, via *driver.Via) *kind {
	key := newKindKey(ctx, r, req, via)
	switch {
	case takesTarget(req.Method):
		name, _ := req.Param("name")
		if len(name) < 2 || name[0] != '"' || len(name) > maxLabel {
			return nil
		}
		key.target = string(name[1 : len(name)-1])
	case methods[req.Method]:
		return s.get(key)
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.byKey[key]
}

// end returns the kind of a request that ended.
func (s *kinds) end(ctx context.Context, r role, req *mcp.Request, via *driver.Via, out *mcp.Outcome) *kind {
	key := newKindKey(ctx, r, req, via)
	switch {
	case takesTarget(req.Method):
		key.target = s.label(&s.targets[r], out.Target, maxTargets)
	case methods[req.Method]:
	case out.Err != nil:
		key.method = other
	default:
		key.method = s.label(&s.methods[r], req.Method, maxMethods)
	}
	return s.get(key)
}

// label returns a name if it is among the first names seen, or else other.
func (s *kinds) label(known *map[string]bool, name string, most int) string {
	if name == "" || len(name) > maxLabel || !utf8.ValidString(name) {
		return other
	}
	s.mu.RLock()
	found := (*known)[name]
	s.mu.RUnlock()
	if found {
		return name
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case (*known)[name]:
		return name
	case len(*known) >= most:
		return other
	case *known == nil:
		*known = map[string]bool{}
	}
	(*known)[name] = true
	return name
}

// session returns the kind of sessions.
func (s *kinds) session(ctx context.Context, r role, via *driver.Via) *kind {
	key := kindKey{role: r, network: via.Network, protocol: via.Protocol, protocolVersion: via.ProtocolVersion}
	if r == client {
		key.serverHost, key.hosted = via.Peer, host.ServerFrom(ctx)
	}
	return s.get(key)
}

// get returns the kind of a key, and adds it if necessary.
func (s *kinds) get(key kindKey) *kind {
	s.mu.RLock()
	known := s.byKey[key]
	s.mu.RUnlock()
	if known != nil {
		return known
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.size[key.role] >= maxKinds {
		key = kindKey{role: key.role, method: other}
	}
	if k := s.byKey[key]; k != nil {
		return k
	}
	if s.byKey == nil {
		s.byKey = map[kindKey]*kind{}
	}
	k := newKind(key)
	s.byKey[key] = k
	s.size[key.role]++
	return k
}

func newKind(key kindKey) *kind {
	k := &kind{kindKey: key, name: key.method}
	spanKind := [roles]trace.SpanKind{trace.SpanKindServer, trace.SpanKindClient, trace.SpanKindInternal}[key.role]
	k.start = []trace.SpanStartOption{trace.WithSpanKind(spanKind)}
	add := func(name, value string) {
		if value == "" {
			return
		}
		k.labels = append(k.labels, attribute.String(name, value))
		if value != other { // spans contain the value itself
			k.attributes = append(k.attributes, attribute.String(name, value))
		}
	}
	add(attrMethod, key.method)
	switch key.method {
	case methodCall:
		add(attrTool, key.target)
		add(attrOperation, executeTool)
	case methodPrompt:
		add(attrPrompt, key.target)
	}
	if key.target != "" && key.target != other {
		k.name += " " + key.target
	}
	add(attrRevision, key.revision)
	add(attrNetwork, key.network)
	add(attrProtocol, key.protocol)
	add(attrProtocolVersion, key.protocolVersion)
	add(attrServer, key.hosted)
	address, port := splitHost(key.serverHost)
	add(attrServerAddress, address)
	if port > 0 {
		k.labels = append(k.labels, attribute.Int(attrServerPort, port))
		k.attributes = append(k.attributes, attribute.Int(attrServerPort, port))
	}
	k.succeeded = record(k.labels)
	return k
}

func record(labels []attribute.KeyValue) []metric.RecordOption {
	return []metric.RecordOption{metric.WithAttributeSet(attribute.NewSet(labels...))}
}

// splitHost splits an address. The port is 0 if the address contains no port.
func splitHost(address string) (host string, port int) {
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return address, 0
	}
	port, _ = strconv.Atoi(text)
	return host, port
}

// options returns the labels of a result, or of a failure.
func (k *kind) options(failure string) []metric.RecordOption {
	if failure == "" {
		return k.succeeded
	}
	k.mu.RLock()
	o := k.failed[failure]
	k.mu.RUnlock()
	if o != nil {
		return o
	}
	labels := append(slices.Clone(k.labels), attribute.String(attrErrorType, failure))
	if isCode(failure) {
		labels = append(labels, attribute.String(attrStatusCode, failure))
	}
	o = record(labels)
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.failed == nil {
		k.failed = map[string][]metric.RecordOption{}
	}
	k.failed[failure] = o
	return o
}

// failure returns the value of error.type for metrics: empty for a result, otherwise a value of a
// limited set.
func (s *kinds) failure(op *operation, k *kind, out *mcp.Outcome) string {
	switch {
	case out.Err == nil && out.ToolError:
		return errorTool
	case out.Err == nil:
		return ""
	case op.Err() != nil:
		return ended(context.Cause(op))
	}
	if status, ok := errors.AsType[*mcphttp.StatusError](out.Err); ok && http.StatusText(status.StatusCode) != "" {
		return errorHTTP + strconv.Itoa(status.StatusCode)
	}
	if e, ok := errors.AsType[*mcp.Error](out.Err); ok {
		if code, ok := errorCodes[e.Code]; ok {
			return code
		}
		return s.label(s.codesOf(op.role, k.hosted), strconv.Itoa(e.Code), maxCodes)
	}
	return ended(out.Err)
}

// ended returns the value of error.type for a request without a response.
func ended(err error) string {
	if _, ok := errors.AsType[*mcp.TransportError](err); ok {
		if typ := ended(errors.Unwrap(err)); typ != other {
			return typ
		}
		return errorTransport
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return errorTimeout
	case errors.Is(err, mcp.ErrClosed):
		return errorClosed
	case errors.Is(err, mcp.ErrCancelled), errors.Is(err, context.Canceled):
		return errorCancelled
	}
	return other
}

// isCode reports whether a value of error.type is the code of a JSON-RPC error.
func isCode(failure string) bool {
	_, err := strconv.Atoi(failure)
	return err == nil
}

// sessionFailure returns the value of error.type of a session: empty if either side closed it.
func sessionFailure(cause error) string {
	if typ := ended(cause); cause != nil && typ == errorTimeout {
		return typ
	}
	return ""
}
