package question

import (
	"bytes"
	"cmp"
	"context"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/content"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
	"github.com/patchbay-mcp/patchbay/gateway/internal/rawjson"
	"github.com/patchbay-mcp/patchbay/mcp"
)

const (
	// sampleTime limits the command of --sample-with. Models answer within minutes; clients wait
	// for 10.
	sampleTime = 5 * time.Minute
	// samplePipeTime limits the wait for processes that outlive the command and hold its output.
	samplePipeTime = 2 * time.Second
	// maxSample bounds the answer of the command, in bytes: text, or an image.
	maxSample = 4 << 20
	// maxSampleStderr bounds the end of its standard error that is shown, in bytes.
	maxSampleStderr = 4 << 10
)

// A Sampler answers sampling requests by running a command.
type Sampler struct {
	Argv  []string
	Limit time.Duration
}

// NewSampler returns a sampler for the command line of --sample-with.
func NewSampler(command string) (*Sampler, error) {
	argv, err := term.SplitWords(command)
	if err == nil && len(argv) == 0 {
		err = errors.New("no command")
	}
	if err == nil {
		_, err = exec.LookPath(argv[0])
	}
	if err != nil {
		return nil, fmt.Errorf("--sample-with: %w", err)
	}
	return &Sampler{argv, sampleTime}, nil
}

// answerWithCommand answers a sampling request with the command of --sample-with. On a terminal the
// user sees the request before it is given to the command, and the answer before it is sent. Spec:
// client/sampling, User Interaction Model.
func (p *Asker) answerWithCommand(ctx context.Context, q samplingQuestion) (*answer, error) {
	const refused = "the command of --sample-with failed"
	if p.IO.MayPrompt() {
		p.IO.Err.Printf("\n%s requests sampling:\n%s", p.server(), term.Indent(q.conversation(), "  "))
		yes, err := p.Confirm(ctx, "Give it to "+term.CleanLine(p.Sampler.Argv[0])+"?", "y")
		if err != nil || !yes {
			return declinedUnless(err)
		}
	}
	p.IO.Err.Status("waiting for " + term.CleanLine(p.Sampler.Argv[0]) + " …")
	result, err := p.Sampler.Run(ctx, q.CreateMessageParams)
	p.IO.Err.Done()
	if err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		p.IO.Err.Printf("patchbay: --sample-with: %s", term.Clean(err.Error()))
		return nil, mcp.Errorf(mcp.CodeInternalError, refused)
	}
	if !p.IO.MayPrompt() {
		p.IO.Err.Printf("%s asks: %s\n  answered by %s", p.server(), q.summary(), term.CleanLine(p.Sampler.Argv[0]))
		return &answer{Result: result}, nil
	}
	p.IO.Err.Printf("\nThe answer:\n%s", term.Indent(conversationOf(result), "  "))
	yes, err := p.Confirm(ctx, "Send it to the server?", "y")
	if err != nil || !yes {
		return declinedUnless(err)
	}
	return &answer{Result: result}, nil
}

// declinedUnless returns "decline" if the user declined or left the prompt, and otherwise err.
func declinedUnless(err error) (*answer, error) {
	if err != nil && !errors.Is(err, ErrDeclined) && !errors.Is(err, ErrCancelled) {
		return nil, err
	}
	return &answer{Action: mcp.ElicitDecline}, nil
}

func conversationOf(r *mcp.CreateMessageResult) string {
	var all []string
	for _, c := range r.Content {
		all = append(all, term.Clean(content.Describe(c)))
	}
	return strings.Join(all, "\n")
}

// Run runs the command. Its standard input is the JSON of the params.
func (s *Sampler) Run(ctx context.Context, params *mcp.CreateMessageParams) (*mcp.CreateMessageResult, error) {
	text, err := json.Marshal(params)
	if err != nil {
		return nil, err
	}
	limited, cancel := context.WithTimeout(ctx, s.Limit)
	defer cancel()
	cmd := exec.CommandContext(limited, s.Argv[0], s.Argv[1:]...)
	cmd.Stdin = bytes.NewReader(append(text, '\n'))
	cmd.WaitDelay = samplePipeTime
	out, last := &boundedBuffer{most: maxSample, full: cancel}, &lastBytes{}
	cmd.Stdout, cmd.Stderr = out, last
	err = cmd.Run()
	switch {
	case out.isFull:
		return nil, fmt.Errorf("%s: more than %s of output", s.Argv[0], term.FormatBytes(maxSample))
	case errors.Is(limited.Err(), context.DeadlineExceeded):
		return nil, fmt.Errorf("%s: no answer within %v%s", s.Argv[0], s.Limit, last)
	case err != nil:
		return nil, fmt.Errorf("%s: %w%s", s.Argv[0], err, last)
	}
	r, err := sampleResult(out.text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w%s", s.Argv[0], err, last)
	}
	return r, nil
}

// sampleResult parses the output of a command: a CreateMessageResult as JSON, or a result's text.
func sampleResult(output []byte) (*mcp.CreateMessageResult, error) {
	text := bytes.TrimSpace(output)
	if len(text) == 0 {
		return nil, errors.New("no output: want a CreateMessageResult or text")
	}
	if rawjson.Kind(text) == '{' && rawjson.Valid(text) == nil {
		_, hasRole := rawjson.Get(text, "role")
		if _, hasContent := rawjson.Get(text, "content"); hasRole && hasContent {
			r := &mcp.CreateMessageResult{}
			if err := json.Unmarshal(text, r); err != nil {
				return nil, fmt.Errorf("invalid CreateMessageResult: %w", err)
			}
			r.Model = cmp.Or(r.Model, "unknown") // the member is required
			return r, nil
		}
	}
	return (&answer{Text: strings.ToValidUTF8(string(text), "\uFFFD"), Model: "unknown"}).sampleResult()
}

// A boundedBuffer holds output up to a limit, and calls full when the command writes more. It must
// not embed a bytes.Buffer, whose ReadFrom is unlimited.
type boundedBuffer struct {
	text   []byte
	most   int
	full   func()
	isFull bool
}

func (b *boundedBuffer) Write(p []byte) (int, error) {
	if len(b.text)+len(p) > b.most {
		b.isFull = true
		b.full()
		return 0, errors.New("too much output")
	}
	b.text = append(b.text, p...)
	return len(p), nil
}

// lastBytes holds the end of the written text.
type lastBytes struct{ text []byte }

func (l *lastBytes) Write(p []byte) (int, error) {
	l.text = append(l.text, p...)
	l.text = l.text[max(len(l.text)-maxSampleStderr, 0):]
	return len(p), nil
}

// String returns the text with a heading, or "" if the text is blank.
func (l *lastBytes) String() string {
	if len(bytes.TrimSpace(l.text)) == 0 {
		return ""
	}
	return "\nstandard error of the command:\n" + term.Indent(string(l.text), "  ")
}

// A samplingQuestion is a sampling request, in which the user plays the model.
type samplingQuestion struct{ *mcp.CreateMessageParams }

// message returns the text of the last message.
func (q samplingQuestion) message() string {
	if len(q.Messages) == 0 {
		return ""
	}
	var last strings.Builder
	for _, c := range q.Messages[len(q.Messages)-1].Content {
		if text, ok := c.(*mcp.TextContent); ok {
			last.WriteString(text.Text)
		}
	}
	return last.String()
}

func (q samplingQuestion) summary() string {
	return term.CleanLine("sampling, the answer of a language model to: " + term.Shorten(q.message(), 100))
}

func (q samplingQuestion) Arguments() []string { return []string{"text=…"} }

func (q samplingQuestion) fits(*answer) bool { return true }

// samplingSchema is the schema of the words that answer a sampling request.
const samplingSchema = `{"type": "object", "properties": {"text": {"type": "string"}, "model": {"type": "string"}},

	"required": ["text"]}`

func (q samplingQuestion) parse(ctx context.Context, p *Asker, given *Given) (*answer, error) {
	fields, err := p.newFields(ctx, given.Words, stdjson.RawMessage(samplingSchema))
	if err != nil {
		return nil, exit.UsageError(err)
	}
	a := &answer{}
	if err := json.Unmarshal(fields.Object(), a); err != nil {
		return nil, exit.UsageError(err)
	}
	return a, nil
}

func (q samplingQuestion) prompt(ctx context.Context, a *Asker) (*answer, error) {
	a.IO.Err.Printf("\n%s requests sampling: answer as the language model.\n%s\n\n  Type the answer. End it with a "+
		"line that is a single dot (%s to decline):", a.server(), term.Indent(q.conversation(), "  "), commandDecline)
	text, err := a.promptParagraph(ctx)
	return &answer{Text: text}, err
}

func (q samplingQuestion) conversation() string {
	var b strings.Builder
	if q.SystemPrompt != "" {
		b.WriteString("system: " + term.Clean(q.SystemPrompt) + "\n")
	}
	for _, m := range q.Messages {
		for _, c := range m.Content {
			b.WriteString(term.CleanLine(string(m.Role)) + ": " + term.Clean(content.Describe(c)) + "\n")
		}
	}
	return b.String()
}
