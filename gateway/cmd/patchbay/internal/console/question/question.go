// Package question contains the questions of servers that persons answer in the web console:
// elicitation and sampling.
package question

import (
	"fmt"
	"net/url"
	"strings"
	"time"

	stdjson "encoding/json"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/content"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/form"
	"github.com/patchbay-mcp/patchbay/jsonschema"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/oauth/oauthclient"
)

// An Origin identifies the server and the run that a question belongs to.
type Origin struct {
	Server string // "" if it is not known
	Run    int    // in Explore; 0 for a question that belongs to no run
	// Person identifies who may answer; see [PersonOf]. Every operator may answer a question
	// without a Run.
	Person string
	Link   string // the page of the run, or ""
}

// PersonOf identifies a principal; "" is the local user.
func PersonOf(p *mcp.Principal) string {
	if p == nil {
		return ""
	}
	return p.Issuer + "\n" + p.Subject
}

// A Question is an elicitation or a sampling request of a server. It is immutable: a change
// replaces it in its [Desk].
type Question struct {
	ID int
	Origin
	Asked   time.Time
	Message string
	Form    *form.Form // of a form
	URL     *url.URL   // of a page to visit
	Warning string     // about the host of the page
	// Messages and System are the conversation of a sampling request.
	Messages []Message
	System   string
	Answer   string // the answer in a word; "" while the question is open

	isSampling bool

	schema stdjson.RawMessage
	answer chan *answer
	size   int // of its texts, in bytes
}

// A Message is a message of a conversation.
type Message struct{ Role, Text string }

// An answer is the answer of a person.
type answer struct {
	action  mcp.ElicitAction
	content stdjson.RawMessage // of a form
	text    string             // of a sampling request
}

// words are the words for the answers of a person.
var words = map[mcp.ElicitAction]string{mcp.ElicitAccept: "accepted", mcp.ElicitDecline: "declined",
	mcp.ElicitCancel: "cancelled"}

// Element returns the id of the element of a question.
func (q *Question) Element() string { return fmt.Sprintf("question-%d", q.ID) }

// IsSampling reports whether the person answers as the language model.
func (q *Question) IsSampling() bool { return q.isSampling }

// Summary returns the question in a few words.
func (q *Question) Summary() string {
	from := q.Server
	if from == "" {
		from = "A server"
	}
	switch {
	case q.IsSampling():
		return from + " asks for an answer of a language model"
	case q.URL != nil:
		return from + " asks you to visit a page"
	}
	return from + " asks a question"
}

// Version returns a text that changes with the question.
func (q *Question) Version() string { return fmt.Sprintf("%d %s %p", q.ID, q.Answer, q.Form) }

// close returns the question with its answer, without the parts that only an open question needs.
func (q *Question) close(word string) *Question {
	closed := *q
	closed.Answer, closed.Form, closed.Messages, closed.System, closed.schema = word, nil, nil, "", nil
	const most = 1 << 10 // of the message of an answered question
	if len(closed.Message) > most {
		closed.Message = strings.ToValidUTF8(closed.Message[:most], "") + "…"
	}
	return &closed
}

// ofElicitation returns the question for an elicitation. err is the reason why the page of an
// elicitation in URL mode must not be opened. Spec: client/elicitation.
func ofElicitation(p *mcp.ElicitRequestParams) (q *Question, err error) {
	q = &Question{Message: p.Message, size: len(p.Message) + len(p.URL) + len(p.RequestedSchema)}
	if p.Mode != "url" {
		q.Form, q.schema = form.New(p.RequestedSchema), p.RequestedSchema
		return q, nil
	}
	if q.URL, err = oauthclient.CheckPage(p.URL); err != nil {
		q.URL = &url.URL{Opaque: p.URL}
		return q, err
	}
	q.Warning = p.HostWarning()
	return q, nil
}

// ofSampling returns the question for a sampling request. Spec: client/sampling.
func ofSampling(p *mcp.CreateMessageParams) *Question {
	q := &Question{System: p.SystemPrompt, isSampling: true, size: len(p.SystemPrompt)}
	for _, m := range p.Messages {
		var texts []string
		for _, c := range m.Content {
			texts = append(texts, content.Describe(c))
		}
		q.Messages = append(q.Messages, Message{string(m.Role), strings.Join(texts, "\n")})
		q.size += len(q.Messages[len(q.Messages)-1].Text)
	}
	return q
}

// read returns the answer that a person posted. If a button of the form was pressed or the form is
// invalid, it returns nil, and edited is the form with the posted values and their problems.
func (q *Question) read(action mcp.ElicitAction, posted url.Values) (a *answer, edited *form.Form, err error) {
	a = &answer{action: action, text: posted.Get("text")}
	isPressed := form.Pressed(posted)
	if q.Form == nil || action != mcp.ElicitAccept && !isPressed {
		return a, q.Form, nil
	}
	if edited, err = form.Read(q.schema, posted); err != nil {
		return nil, nil, err
	}
	edited.SetScope(q.scope())
	if isPressed {
		return nil, edited, nil
	}
	if a.content = checkedContent(edited, q.schema); a.content == nil {
		return nil, edited, nil
	}
	return a, edited, nil
}

// scope distinguishes the fields of the question from the fields of other forms of the page.
func (q *Question) scope() string { return fmt.Sprintf("q%d", q.ID) }

// checkedContent returns the text of a valid form. Otherwise it returns nil, and the form contains
// the problems.
func checkedContent(f *form.Form, schema stdjson.RawMessage) stdjson.RawMessage {
	text, err := f.JSON()
	if !f.Root.CheckFormats() || err != nil {
		return nil
	}
	compiled, err := jsonschema.Compile(schema)
	if err != nil {
		return text // the client refuses it
	}
	text = compiled.ApplyDefaults(text)
	if err := compiled.Validate(text); err != nil {
		f.Mark(err)
		return nil
	}
	return text
}
