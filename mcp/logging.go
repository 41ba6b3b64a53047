package mcp

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/schema"
	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// A LoggingLevel is the severity of a log message by RFC 5424: "debug", "info", "notice", "warning",
// "error", "critical", "alert" or "emergency".
//
// Spec: server/utilities/logging, Log Levels.
type LoggingLevel string

// Level implements [slog.Leveler]. "notice" is slog.LevelInfo+2; "critical", "alert" and "emergency"
// are slog.LevelError+4, +8 and +12. An unknown level is slog.LevelDebug.
func (l LoggingLevel) Level() slog.Level {
	for _, entry := range logLevels {
		if entry.name == l {
			return entry.from
		}
	}
	return slog.LevelDebug
}

// logLevels maps the levels of slog to the levels of the protocol. Levels that slog does not name
// are numbers such as slog.LevelInfo+2.
var logLevels = []struct {
	from slog.Level
	name LoggingLevel
}{
	{slog.LevelError + 12, "emergency"}, {slog.LevelError + 8, "alert"}, {slog.LevelError + 4, "critical"},
	{slog.LevelError, "error"}, {slog.LevelWarn, "warning"}, {slog.LevelInfo + 2, "notice"},
	{slog.LevelInfo, "info"},
}

func logLevelOf(l slog.Level) LoggingLevel {
	for _, entry := range logLevels {
		if l >= entry.from {
			return entry.name
		}
	}
	return "debug"
}

// Logger returns a logger that sends its records to the client of the call of ctx, if the client
// asked for their level. Records must not contain secrets. Groups and attributes become the data of
// the message. A string attribute "logger" that [slog.Logger.With] adds outside of groups becomes
// the name of the logger instead, such as "database". Outside a handler, and after the handler
// returned, records are dropped. The protocol deprecates log messages since 2026-07-28.
//
// Spec: server/utilities/logging.
func Logger(ctx context.Context) *slog.Logger { return slog.New(&logHandler{call: callFrom(ctx)}) }

// loggerKey is the key of the attribute that names a logger.
const loggerKey = "logger"

// A logHandler sends records as notifications of its call.
type logHandler struct {
	call  *call
	name  string
	attrs []slog.Attr // wrapped in their groups
	group []string
}

// Enabled reports whether the client asked for records of this level.
func (h *logHandler) Enabled(_ context.Context, l slog.Level) bool {
	c := h.call
	if c == nil || c.server != nil && c.server.opts.NoLogging {
		return false
	}
	return c.req.Notify != nil && c.req.env.LogLevel != "" && l >= c.req.LogLevel().Level()
}

func (h *logHandler) Handle(_ context.Context, r slog.Record) error {
	attrs := slices.Clone(h.attrs)
	var own []slog.Attr
	r.Attrs(func(a slog.Attr) bool { own = append(own, a); return true })
	attrs = append(attrs, h.grouped(own)...)
	var data any = r.Message
	if len(attrs) > 0 {
		data = logData(append([]slog.Attr{slog.String(slog.MessageKey, r.Message)}, attrs...))
	}
	encoded, err := schema.Encode(data)
	if err != nil {
		encoded = jsonscan.AppendQuote(nil, r.Message) // an attribute cannot be encoded: send the message alone
	}
	params := jsonscan.AppendQuote([]byte(`{"level":`), string(logLevelOf(r.Level)))
	if h.name != "" {
		params = jsonscan.AppendQuote(append(params, `,"logger":`...), h.name)
	}
	params = append(append(params, `,"data":`...), encoded...)
	return h.call.log(append(params, '}'))
}

// WithAttrs returns a handler that adds the attributes to each record.
func (h *logHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	n := *h
	if len(h.group) == 0 {
		attrs = slices.DeleteFunc(slices.Clone(attrs), func(a slog.Attr) bool {
			isName := a.Key == loggerKey && a.Value.Kind() == slog.KindString
			if isName {
				n.name = a.Value.String()
			}
			return isName
		})
	}
	n.attrs = append(slices.Clone(h.attrs), h.grouped(attrs)...)
	return &n
}

// WithGroup returns a handler that puts later attributes into a group.
func (h *logHandler) WithGroup(name string) slog.Handler {
	if name == "" {
		return h
	}
	n := *h
	n.group = append(slices.Clone(h.group), name)
	return &n
}

func (h *logHandler) grouped(attrs []slog.Attr) []slog.Attr {
	if len(attrs) == 0 {
		return nil
	}
	for i := len(h.group) - 1; i >= 0; i-- {
		attrs = []slog.Attr{{Key: h.group[i], Value: slog.GroupValue(attrs...)}}
	}
	return attrs
}

// logData returns attributes as an object. The last of a name is kept, but groups are merged.
func logData(attrs []slog.Attr) map[string]any {
	m := map[string]any{}
	for _, a := range attrs {
		v := a.Value.Resolve()
		if v.Kind() != slog.KindGroup {
			m[a.Key] = logValue(v)
			continue
		}
		inner := logData(v.Group())
		if a.Key == "" {
			maps.Copy(m, inner)
		} else if old, ok := m[a.Key].(map[string]any); ok {
			maps.Copy(old, inner)
		} else if len(inner) > 0 {
			m[a.Key] = inner
		}
	}
	return m
}

func logValue(v slog.Value) any {
	switch v.Kind() {
	case slog.KindDuration:
		return v.Duration().String()
	case slog.KindAny:
		if err, ok := v.Any().(error); ok {
			return err.Error()
		}
	}
	return v.Any()
}

func (c *call) log(params []byte) error {
	// No message may follow the result, which finished marks.
	c.progress.mu.Lock()
	defer c.progress.mu.Unlock()
	if c.progress.finished {
		return nil
	}
	c.warnDeprecated(wire.Logging, "log messages")
	return c.req.Notify(c, wire.NotificationMessage, params)
}

func (c *call) warnDeprecated(f wire.Feature, name string) {
	if c.server == nil {
		return
	}
	c.server.deprecations.log(c, c.server.log, slog.LevelWarn, c.req.env.Revision, f, name)
}

// deprecations logs once for each feature of a server or a client that the revision of a connection
// deprecates it. A server warns its author; at a client, which follows the server, it is information.
//
// Spec: SEP-2577.
type deprecations struct{ logged sync.Map } // by wire.Feature

func (d *deprecations) log(
	ctx context.Context, log *slog.Logger, level slog.Level, r wire.Revision, f wire.Feature, name string,
) {
	if !r.Deprecated(f) {
		return
	}
	if _, logged := d.logged.LoadOrStore(f, true); !logged {
		log.Log(ctx, level, "mcp: the protocol deprecates a feature that is in use", "feature", name, "revision", r)
	}
}
