package mcp

import (
	stdjson "encoding/json"

	"github.com/go-json-experiment/json"
)

// ClientCapabilities is what a client can do, as it declares with every request. A nil pointer is "no".
//
// Spec: basic (2026-07-28), Capabilities; schema ClientCapabilities.
type ClientCapabilities struct {
	// Elicitation: the client asks its user on behalf of the server. With neither mode named it means forms.
	Elicitation *ElicitationCapability `json:"elicitation,omitzero"`
	// Sampling: the client runs its model on behalf of the server.
	Sampling *SamplingCapability `json:"sampling,omitzero"`
	// Roots: the client says which folders it works in.
	Roots *struct{} `json:"roots,omitzero"`
	// Experimental holds capabilities outside the specification.
	Experimental map[string]any `json:"experimental,omitzero"`
	// Extensions maps the id of each supported extension to its settings.
	Extensions map[string]stdjson.RawMessage `json:"extensions,omitzero"`
}

// ElicitationCapability names the kinds of question that a client can put to its user.
type ElicitationCapability struct {
	Form *struct{} `json:"form,omitzero"`
	URL  *struct{} `json:"url,omitzero"`
}

// SamplingCapability names what a client's sampling can do beyond plain messages.
type SamplingCapability struct {
	Tools   *struct{} `json:"tools,omitzero"`
	Context *struct{} `json:"context,omitzero"`
}

// parseClientCapabilities reads a declaration. A part that is not understood is a part that is not declared: capability
// sets are open, and one odd member must not take the others away.
func parseClientCapabilities(raw stdjson.RawMessage) (c ClientCapabilities) {
	if json.Unmarshal(raw, &c) == nil {
		return c
	}
	var parts map[string]stdjson.RawMessage
	if json.Unmarshal(raw, &parts) != nil {
		return ClientCapabilities{}
	}
	c = ClientCapabilities{}
	takePart(parts, "elicitation", &c.Elicitation)
	takePart(parts, "sampling", &c.Sampling)
	takePart(parts, "roots", &c.Roots)
	takePart(parts, "experimental", &c.Experimental)
	takePart(parts, "extensions", &c.Extensions)
	return c
}

// takePart reads one part of a declaration; what cannot be read leaves into as it is.
func takePart[T any](parts map[string]stdjson.RawMessage, name string, into *T) {
	var part T
	if json.Unmarshal(parts[name], &part) == nil {
		*into = part
	}
}

// asksForm reports whether questions may be asked as forms.
func (c ClientCapabilities) asksForm() bool {
	return c.Elicitation != nil && (c.Elicitation.Form != nil || c.Elicitation.URL == nil)
}

// asksURL reports whether the user may be sent to a page.
func (c ClientCapabilities) asksURL() bool { return c.Elicitation != nil && c.Elicitation.URL != nil }

// ServerCapabilities is what a server offers.
//
// Spec: schema ServerCapabilities (2026-07-28).
type ServerCapabilities struct {
	Tools        *ListCapability     `json:"tools,omitzero"`
	Prompts      *ListCapability     `json:"prompts,omitzero"`
	Resources    *ResourceCapability `json:"resources,omitzero"`
	Completions  *struct{}           `json:"completions,omitzero"`
	Logging      *struct{}           `json:"logging,omitzero"`
	Experimental map[string]any      `json:"experimental,omitzero"`
	Extensions   map[string]any      `json:"extensions,omitzero"`
	// Tasks is of revision 2025-11-25 alone: requests may be carried on as tasks. Later it is an extension.
	Tasks *TasksCapability `json:"tasks,omitzero"`
}

func (c *ServerCapabilities) append(dst []byte) ([]byte, error) {
	o := newObject(dst)
	if c.Tools != nil {
		o.part("tools", c.Tools)
	}
	if c.Prompts != nil {
		o.part("prompts", c.Prompts)
	}
	if c.Resources != nil {
		o.part("resources", c.Resources)
	}
	o.mark("completions", c.Completions)
	o.mark("logging", c.Logging)
	o.open("experimental", c.Experimental)
	o.open("extensions", c.Extensions)
	if c.Tasks != nil {
		o.value("tasks", c.Tasks)
	}
	return o.end()
}

// TasksCapability says what a server of revision 2025-11-25 does with tasks.
//
// Spec: basic/utilities/tasks (2025-11-25), Server Capabilities.
type TasksCapability struct {
	List     *struct{}     `json:"list,omitzero"`     // tasks/list is answered
	Cancel   *struct{}     `json:"cancel,omitzero"`   // tasks/cancel is answered
	Requests *TaskRequests `json:"requests,omitzero"` // which requests may become tasks
}

// TaskRequests names the requests that may become tasks, by the first part of their method.
type TaskRequests struct {
	Tools *TaskToolRequests `json:"tools,omitzero"`
}

// TaskToolRequests names the requests on tools that may become tasks.
type TaskToolRequests struct {
	Call *struct{} `json:"call,omitzero"` // tools/call
}

// ListCapability says whether changes of a list can be listened to.
type ListCapability struct {
	ListChanged bool `json:"listChanged,omitzero"`
}

func (c *ListCapability) append(dst []byte) ([]byte, error) {
	o := newObject(dst)
	o.flag("listChanged", c.ListChanged)
	return o.end()
}

// ResourceCapability says what about resources can be listened to.
type ResourceCapability struct {
	Subscribe   bool `json:"subscribe,omitzero"`   // changes of one resource
	ListChanged bool `json:"listChanged,omitzero"` // changes of the list
}

func (c *ResourceCapability) append(dst []byte) ([]byte, error) {
	o := newObject(dst)
	o.flag("subscribe", c.Subscribe)
	o.flag("listChanged", c.ListChanged)
	return o.end()
}

// capabilities derives what the server offers from what was registered.
func (s *Server) capabilities() ServerCapabilities {
	s.mu.Lock()
	extensions := s.extensions
	s.mu.Unlock()
	caps := ServerCapabilities{Logging: &struct{}{}, Experimental: s.opts.Experimental, Extensions: extensions}
	if s.tools.ever.Load() {
		caps.Tools = &ListCapability{ListChanged: true}
	}
	if s.prompts.ever.Load() {
		caps.Prompts = &ListCapability{ListChanged: true}
	}
	if s.offersResources() {
		caps.Resources = &ResourceCapability{Subscribe: true, ListChanged: true}
	}
	if s.completes.Load() {
		caps.Completions = &struct{}{}
	}
	return caps
}

func (s *Server) offersResources() bool { return s.resources.ever.Load() || s.templates.ever.Load() }
