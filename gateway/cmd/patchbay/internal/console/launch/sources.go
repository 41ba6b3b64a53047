package launch

import (
	"context"
	"log/slog"
	"path/filepath"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/logs"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/question"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/flags"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/hosting"
	cli "github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/question"
	"github.com/patchbay-mcp/patchbay/host"
)

// Sources hold the log lines and the questions of a host for its console. They are safe for
// concurrent use.
type Sources struct {
	logs      logs.Book
	questions question.Desk
}

// Collect makes the host of a configuration add its log, and the log messages and printed lines of
// its servers, to the sources, before the host is open. The servers add lines only if Capture is set.
func Collect(c *hosting.Config) *Sources {
	s, before := &Sources{}, c.Prepare
	if c.Capture != nil {
		c.Capture.SetLog(s.logs.Line)
	}
	c.Prepare = func(o *host.Options) {
		if before != nil {
			before(o)
		}
		o.Logger = s.Logger(o.Logger)
	}
	return s
}

// AnswerAll makes operators answer the questions that belong to no request of a caller, besides the
// questions of their own runs. The host must not be open.
func (s *Sources) AnswerAll(c *hosting.Config) {
	before := c.Prepare
	c.Prepare = func(o *host.Options) {
		if before != nil {
			before(o)
		}
		s.questions.Answer(&o.Client, func(ctx context.Context) question.Origin {
			return question.Origin{Server: host.ServerFrom(ctx)} // and no run
		})
	}
}

// Questions returns the desk with the questions, for a console without a host.
func (s *Sources) Questions() *question.Desk { return &s.questions }

// AnswerWith makes the file of --answers answer questions first, and lets persons answer sampling
// requests with the command of --sample-with. A person sees the answer of the command before it is
// sent. Servers must not ask yet.
func (s *Sources) AnswerWith(ctx context.Context, f *flags.Flags) error {
	if f.Answers != "" {
		answers, err := cli.LoadAnswers(ctx, f.Answers)
		if err != nil {
			return exit.UsageError(err)
		}
		s.questions.AnswerWith(answers)
	}
	if f.SampleWith != "" {
		sampler, err := cli.NewSampler(f.SampleWith)
		if err != nil {
			return exit.UsageError(err)
		}
		s.questions.SampleWith(filepath.Base(sampler.Argv[0]), sampler.Run)
	}
	return nil
}

// Logger returns a logger whose records next logs and the console shows: next for nil Sources.
func (s *Sources) Logger(next *slog.Logger) *slog.Logger {
	if s == nil {
		return next
	}
	return slog.New(s.logs.Handler(next.Handler()))
}

// SetMask sets the function that replaces secrets, such as the method Mask of an operator, which
// exists only when the host is open. Nil Sources ignore it.
func (s *Sources) SetMask(mask func(text string) string) {
	if s != nil {
		s.logs.SetMask(mask)
	}
}
