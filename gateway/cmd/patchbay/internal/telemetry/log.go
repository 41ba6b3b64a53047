package telemetry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/telemetry/otlp"
	"github.com/patchbay-mcp/patchbay/gateway/internal/limitedlog"
	"github.com/patchbay-mcp/patchbay/visible"
)

// An sdkLog receives the reports of the OpenTelemetry SDK. While it starts, it reports variables with
// errors, which it would replace by defaults.
type sdkLog struct {
	lines limitedlog.Log

	mu       sync.Mutex // guards the fields below
	starting bool
	failed   error // while starting
}

// useLog sends the errors of the SDK, which is global, to a log.
func useLog(log *slog.Logger) *sdkLog {
	l := &sdkLog{starting: true, lines: limitedlog.Log{
		Logger: log, Summary: "telemetry: more errors of OpenTelemetry", What: "errors",
	}}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { l.report("", err) }))
	otel.SetLogger(logr.FromSlogHandler(l))
	return l
}

// started returns the errors since the beginning. Further errors are logged.
func (l *sdkLog) started() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.starting = false
	return l.failed
}

// discard silences the SDK, because the program or its log is ending.
func (l *sdkLog) discard() {
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(error) {}))
	otel.SetLogger(logr.Discard())
}

func (l *sdkLog) report(what string, err error) {
	if what != "" {
		err = fmt.Errorf("%s: %w", what, err)
	}
	l.mu.Lock()
	starting := l.starting
	if starting {
		l.failed = errors.Join(l.failed, err)
	}
	l.mu.Unlock()
	if !starting && l.lines.Admit() {
		l.lines.Logger.Warn("telemetry: error of OpenTelemetry", "error", shorten(err.Error()))
	}
}

// Enabled reports whether a record is an error: the others are about the SDK itself.
func (l *sdkLog) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelError }

// Handle reports a record without its other attributes, which contain the values of variables.
func (l *sdkLog) Handle(_ context.Context, r slog.Record) error {
	err := errors.New("failed")
	r.Attrs(func(a slog.Attr) bool {
		if e, ok := a.Value.Any().(error); ok && a.Key == "err" {
			err = e
		}
		return true
	})
	l.report(r.Message, err)
	return nil
}

// WithAttrs returns the same handler: attributes are left out.
func (l *sdkLog) WithAttrs([]slog.Attr) slog.Handler { return l }

// WithGroup returns the same handler.
func (l *sdkLog) WithGroup(string) slog.Handler { return l }

// maxError limits the error of a collector in a line, in bytes: it may contain a page of a proxy.
const maxError = 300

func shorten(text string) string {
	text = visible.EscapeAll(strings.Join(strings.Fields(text), " "))
	if len(text) > maxError {
		text = strings.ToValidUTF8(text[:maxError], "") + "…"
	}
	return text
}

// reminder is the interval between lines of the log while a collector cannot be reached.
const reminder = 10 * time.Minute

// An exportLog logs when exports begin to fail and when they succeed again.
type exportLog struct {
	log  *slog.Logger
	what string            // traces or metrics
	hide *strings.Replacer // of secrets

	mu      sync.Mutex // guards the fields below
	failed  int        // exports since the last success
	logged  time.Time
	partial time.Time // when a PartialError was logged
}

const minSecret = 4 // bytes; a shorter value, such as a number, also occurs in errors that repeat no header

// hiding returns a Replacer of the values of headers, and of the credentials after the scheme of a value.
func hiding(header http.Header) *strings.Replacer {
	var secrets, pairs []string
	for name := range header {
		_, credentials, _ := strings.Cut(header.Get(name), " ")
		secrets = append(secrets, header.Get(name), credentials)
	}
	slices.SortFunc(secrets, func(a, b string) int { return len(b) - len(a) }) // a secret may contain another
	for _, secret := range secrets {
		if len(secret) >= minSecret {
			pairs = append(pairs, secret, "[hidden]")
		}
	}
	return strings.NewReplacer(pairs...)
}

// done records the outcome of an export.
func (l *exportLog) done(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if partial := (*otlp.PartialError)(nil); errors.As(err, &partial) {
		if time.Since(l.partial) >= reminder {
			l.partial = time.Now()
			l.log.Warn("telemetry: the collector accepted "+l.what+" with a warning", "warning",
				shorten(l.hide.Replace(err.Error())))
		}
		err = nil
	}
	if err == nil {
		if l.failed > 0 {
			l.log.Warn("telemetry: "+l.what+" are exported again", "failed", l.failed)
		}
		l.failed = 0
		return
	}
	if l.failed++; l.failed > 1 && time.Since(l.logged) < reminder {
		return
	}
	l.logged = time.Now()
	l.log.Warn("telemetry: "+l.what+" are not exported, and are lost", "error",
		shorten(l.hide.Replace(err.Error())), "failed", l.failed)
}
