// Package question contains the questions that persons answer in the web console: elicitation and
// sampling of servers, and requests of the pages of apps.
package question

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	stdjson "encoding/json"

	"github.com/patchbay-mcp/patchbay/ext/apps"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/page"
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
	App    int    // the ID of an app of the run whose page asks; 0 for a question of the server
	// Person identifies who may answer; see [PersonOf]. Every operator may answer a question
	// without a Run.
	Person string
	Link   string // the page of the run or the app, or ""
	About  string // the run, with its task, or the app; "" without a Link
}

// belongsTo reports whether a question belongs to a run, and to an app of the run unless app is 0.
func (o *Origin) belongsTo(run, app int) bool { return o.Run == run && o.App == app && run != 0 }

// PersonOf identifies a principal; "" is the local user.
func PersonOf(p *mcp.Principal) string {
	if p == nil {
		return ""
	}
	return p.Issuer + "\n" + p.Subject
}

// A Question is an elicitation or a sampling request of a server, or a request of the page of an
// app. It is immutable: a change replaces it in its [Desk].
type Question struct {
	ID  int
	Rev int // rises with each change
	Origin
	Asked   time.Time
	Message string
	Form    *form.Form // of a form
	URL     *url.URL   // of a page to visit
	Warning string     // about the host of the page
	// Messages and System are the conversation of a sampling request.
	Messages []Message
	System   string
	Program  string // whose answer the person can request; "" without a program
	Draft    *Draft // the answer of the program; nil before the person requests it
	Wish     string // of an app, in a few words
	// Call is the call of a tool that an app requests, and Files are the files that it offers.
	Call   *Stake
	Files  []apps.Download
	Answer string // the answer in a word; "" while the question is open
	Hidden bool   // the person may not read the question

	isSampling bool

	schema   stdjson.RawMessage
	answer   chan *answer
	sampling *mcp.CreateMessageParams
	sample   SampleFunc // nil without a program
	drafting chan int   // buffered(1): the number of the draft that the person requests
	size     int        // of its texts, in bytes
}

// A Draft is the answer of a program to a sampling request. A person sees it before it is sent.
type Draft struct {
	Number    int // counts the drafts of the question
	IsRunning bool
	Text      string // of the answer
	Problem   string // the reason why there is no answer
	result    *mcp.CreateMessageResult
}

// A Message is a message of a conversation.
type Message struct{ Role, Text string }

// An answer is the answer of a person.
type answer struct {
	action  mcp.ElicitAction
	content stdjson.RawMessage // of a form
	text    string             // of a sampling request
	result  *mcp.CreateMessageResult
}

// words are the words for the answers of a person.
var words = map[mcp.ElicitAction]string{mcp.ElicitAccept: "accepted", mcp.ElicitDecline: "declined",
	mcp.ElicitCancel: "cancelled"}

// word returns the word for an answer.
func (q *Question) word(action mcp.ElicitAction) string {
	switch {
	case q.App != 0 && action == mcp.ElicitAccept:
		return "approved once"
	case q.App != 0:
		return "denied"
	}
	return words[action]
}

// Element returns the id of the element of a question.
func (q *Question) Element() string { return fmt.Sprintf("question-%d", q.ID) }

// IsSampling reports whether the person answers as the language model.
func (q *Question) IsSampling() bool { return q.isSampling }

// CanSend reports whether the page shows an answer of the program that can be sent.
func (q *Question) CanSend() bool { return q.Draft != nil && q.Draft.result != nil }

// Summary returns the question in a few words.
func (q *Question) Summary() string {
	from := cmp.Or(q.Server, "A server")
	switch {
	case q.App != 0:
		return "The app of " + from + " asks to " + q.Wish
	case q.IsSampling():
		return from + " asks for an answer of a language model"
	case q.URL != nil:
		return from + " asks you to visit a page"
	}
	return from + " asks a question"
}

// Version returns a text that changes with the question.
func (q *Question) Version() string { return fmt.Sprint(q.ID, q.Rev, q.Hidden) }

// Fragment returns the part of a page with the question, in its list "questions".
func (q *Question) Fragment() page.Fragment {
	return page.Fragment{ID: q.Element(), Body: q.Card(), In: "questions", Place: page.Append,
		Version: q.Version()}
}

// Fragments returns the fragments of questions.
func Fragments(questions []*Question) (all []page.Fragment) {
	for _, q := range questions {
		all = append(all, q.Fragment())
	}
	return all
}

// Hide returns the question without its content, for a person who may not read it.
func (q *Question) Hide() *Question {
	hidden := q.close("")
	hidden.Message, hidden.URL, hidden.Hidden = "", nil, true
	return hidden
}

// close returns the question with its answer, without the parts that only an open question needs.
func (q *Question) close(word string) *Question {
	closed := q.changed()
	closed.Answer, closed.Form, closed.Messages, closed.System, closed.schema = word, nil, nil, "", nil
	closed.Draft, closed.sampling, closed.Call, closed.Files = nil, nil, nil, nil
	const most = 1 << 10 // of the message of an answered question
	if len(closed.Message) > most {
		closed.Message = strings.ToValidUTF8(closed.Message[:most], "") + "…"
	}
	return closed
}

// changed returns a copy for a change.
func (q *Question) changed() *Question {
	changed := *q
	changed.Rev++
	return &changed
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
	q := &Question{System: p.SystemPrompt, isSampling: true, size: len(p.SystemPrompt), sampling: p,
		drafting: make(chan int, 1)}
	for _, m := range p.Messages {
		q.Messages = append(q.Messages, Message{string(m.Role), describe(m.Content)})
		q.size += len(q.Messages[len(q.Messages)-1].Text)
	}
	return q
}

// describe returns the content of a message as a text.
func describe(all []mcp.ContentBlock) string {
	var texts []string
	for _, c := range all {
		texts = append(texts, content.Describe(c))
	}
	return strings.Join(texts, "\n")
}

// read returns the answer that a person posted. If a button of the form was pressed or the form is
// invalid, it returns nil, and edited is the form with the posted values and their problems.
func (q *Question) read(action mcp.ElicitAction, posted url.Values) (a *answer, edited *form.Form, err error) {
	a = &answer{action: action, text: posted.Get("text")}
	isPressed := form.Pressed(posted)
	if action == actionSend {
		if !q.CanSend() || posted.Get("draft") != strconv.Itoa(q.Draft.Number) {
			return nil, nil, page.Problem(http.StatusConflict, "draft_changed",
				"the answer was not sent: it is no longer the answer that the page shows")
		}
		return &answer{action: mcp.ElicitAccept, result: q.Draft.result}, nil, nil
	}
	if q.Form == nil || action != mcp.ElicitAccept && !isPressed {
		return a, q.Form, nil
	}
	if edited, err = form.Read(q.schema, posted); err != nil {
		return nil, nil, page.Problem(http.StatusBadRequest, "invalid_form", "%v", err)
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
