package servercard

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/patchbay-mcp/patchbay/internal/netx"
	"github.com/patchbay-mcp/patchbay/internal/oauthfetch"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// schemaURI identifies the only version of the format.
const schemaURI = "https://static.modelcontextprotocol.io/schemas/v1/server-card.schema.json"

// Limits of a card. The schema sets the first four; the others keep hostile cards small.
const (
	minName, maxName = 3, 200
	maxVersion       = 255
	maxDescription   = 100 // characters
	maxTitle         = 100 // characters
	maxRemotes       = 32
	maxInputs        = 64 // headers, variables, or choices of a value
	maxURL           = 2048
)

// Types of a [Remote].
const (
	StreamableHTTP = "streamable-http"
	SSE            = "sse"
)

// A Card describes a server. It is encoded as JSON in the form of the schema. A Card must not be
// modified while it is served.
//
// Spec: schema.ts, ServerCard.
type Card struct {
	// Name identifies the server: the reversed domain of its publisher, a slash, and a name of
	// letters, digits, dots, underscores and hyphens, such as "com.example/weather".
	Name string `json:"name"`
	// Version is the version of the server, not a range of versions.
	Version string `json:"version"`
	// Description says what the server does, in 1 to 100 characters.
	Description string `json:"description"`
	// Title is a name for people, of at most 100 characters.
	Title string `json:"title,omitzero"`
	// WebsiteURL is an http or https URL with more about the server.
	WebsiteURL string `json:"websiteUrl,omitzero"`
	// Repository is where the source code is; nil if the card does not say.
	Repository *Repository `json:"repository,omitzero"`
	// Icons are images of the server. Package ext/icons fetches them safely.
	Icons []mcp.Icon `json:"icons,omitempty"`
	// Remotes are the endpoints of the server.
	Remotes []Remote `json:"remotes,omitempty"`
	// Meta contains data of vendors, whose keys begin with a reversed domain and a slash.
	Meta map[string]jsontext.Value `json:"_meta,omitempty"`
}

// A Repository contains the source code of a server.
type Repository struct {
	URL       string `json:"url"`                // http or https
	Source    string `json:"source"`             // the hosting service, such as "github"
	Subfolder string `json:"subfolder,omitzero"` // relative to the root of the repository
	ID        string `json:"id,omitzero"`        // given by the hosting service
}

// A Remote is an endpoint of a server.
type Remote struct {
	// Type is StreamableHTTP or SSE. [Describe] sets an empty Type to StreamableHTTP.
	Type string `json:"type"`
	// URL is the http or https URL of the endpoint. Names in curly braces stand for Variables.
	URL string `json:"url"`
	// Headers are the headers that the endpoint requires or accepts.
	Headers []Header `json:"headers,omitempty"`
	// Variables describes the variables of URL, by name.
	Variables map[string]Input `json:"variables,omitempty"`
	// SupportedProtocolVersions are the revisions that the endpoint supports.
	SupportedProtocolVersions []string `json:"supportedProtocolVersions,omitempty"`
}

// An Input describes a value that the user of a client supplies.
type Input struct {
	Description string   `json:"description,omitzero"`
	IsRequired  bool     `json:"isRequired,omitzero"` // to connect
	IsSecret    bool     `json:"isSecret,omitzero"`   // such as a token
	Format      string   `json:"format,omitzero"`     // "string", "number", "boolean" or "filepath"; empty for "string"
	Default     string   `json:"default,omitzero"`
	Placeholder string   `json:"placeholder,omitzero"` // an example
	Value       string   `json:"value,omitzero"`       // which the user must not change
	Choices     []string `json:"choices,omitempty"`    // the allowed values; nil for any
}

// A Header is a header of a [Remote]. Names in curly braces in Value stand for Variables.
type Header struct {
	Name string `json:"name"`
	Input
	Variables map[string]Input `json:"variables,omitempty"`
}

// plain is a Card without its methods.
type plain Card

// wireCard is the JSON object of a card.
type wireCard struct {
	Schema string `json:"$schema"`
	plain
}

// MarshalJSON encodes the card with the URI of its schema.
func (c *Card) MarshalJSON() ([]byte, error) {
	return json.Marshal(wireCard{schemaURI, plain(*c)}, json.Deterministic(true))
}

// Parse returns the card of a JSON document, which comes from a stranger. The error says which
// member violates the schema or the limits of this package, such as 16 levels of nesting. Unknown
// members are ignored. Parse does not limit the size of data; documents that [Find] fetches have at
// most 1 MiB.
func Parse(data []byte) (*Card, error) {
	c, err := parse(func(into any) error { return oauthfetch.Decode(data, into) })
	if err != nil {
		return nil, fmt.Errorf("servercard: %w", err)
	}
	return c, nil
}

func parse(decode func(into any) error) (*Card, error) {
	var w wireCard
	if err := decode(&w); err != nil {
		return nil, err
	}
	if w.Schema != schemaURI {
		return nil, fmt.Errorf("invalid $schema %.128q: must be %q", w.Schema, schemaURI)
	}
	c := Card(w.plain)
	return &c, c.Validate()
}

var (
	namePattern     = regexp.MustCompile(`^[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+$`)
	variablePattern = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*$`)
	templatePattern = regexp.MustCompile(`\{[a-zA-Z_][a-zA-Z0-9_]*\}`)
	rangePattern    = regexp.MustCompile(`^[\^~<>=]|\*|\.[xX](?:\.|$)`)
)

// Validate returns an error if the card violates the schema, or the limits of this package.
//
// Spec: schema.ts, ServerCard.
func (c *Card) Validate() error {
	description, title := utf8.RuneCountInString(c.Description), utf8.RuneCountInString(c.Title)
	switch {
	case len(c.Name) < minName || len(c.Name) > maxName || !namePattern.MatchString(c.Name):
		return fmt.Errorf("invalid name %.200q: must be a reversed domain, a slash and a name, such as "+
			"com.example/weather", c.Name)
	case c.Version == "" || len(c.Version) > maxVersion || rangePattern.MatchString(c.Version):
		return fmt.Errorf("invalid version %.64q: must be one version of at most %d bytes", c.Version, maxVersion)
	case description < 1 || description > maxDescription:
		return fmt.Errorf("invalid description: has %d characters, must have 1 to %d", description, maxDescription)
	case title > maxTitle:
		return fmt.Errorf("invalid title: has %d characters, must have at most %d", title, maxTitle)
	case len(c.Remotes) > maxRemotes:
		return fmt.Errorf("invalid remotes: has %d, must have at most %d", len(c.Remotes), maxRemotes)
	}
	if err := checkPage("websiteUrl", c.WebsiteURL); c.WebsiteURL != "" && err != nil {
		return err
	}
	if c.Repository != nil {
		if err := checkPage("repository.url", c.Repository.URL); err != nil {
			return err
		}
	}
	for i := range c.Remotes {
		if err := c.Remotes[i].check(); err != nil {
			return fmt.Errorf("remote %d: %w", i+1, err)
		}
	}
	return nil
}

// checkPage returns an error unless a text is the URL of a page. Other schemes, such as javascript,
// could do harm where a program shows a link.
func checkPage(member, text string) error {
	if _, err := parseURL(text); err != nil {
		return fmt.Errorf("invalid %s: %w", member, err)
	}
	return nil
}

func parseURL(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	switch {
	case len(text) > maxURL:
		return nil, fmt.Errorf("the URL has %d bytes, must have at most %d", len(text), maxURL)
	case err != nil || !netx.IsHTTP(u) || !netx.HasValidPort(u) || strings.ContainsFunc(text, isSpace):
		return nil, fmt.Errorf("%.200q must be an http or https URL", text)
	case u.User != nil:
		return nil, errors.New("the URL must not contain credentials: everybody can read a card")
	}
	return u, nil
}

func isSpace(r rune) bool { return r <= ' ' }

func (r *Remote) check() error {
	if r.Type != StreamableHTTP && r.Type != SSE {
		return fmt.Errorf("invalid type %.64q: must be %q or %q", r.Type, StreamableHTTP, SSE)
	}
	if _, err := parseURL(withoutVariables(r.URL)); err != nil {
		return fmt.Errorf("invalid url: %w", err)
	}
	if len(r.Headers) > maxInputs {
		return fmt.Errorf("invalid headers: has %d, must have at most %d", len(r.Headers), maxInputs)
	}
	for i := range r.Headers {
		h := &r.Headers[i]
		if !netx.IsToken(h.Name) {
			return fmt.Errorf("invalid name %.64q of a header", h.Name)
		}
		if err := errors.Join(h.check(), checkVariables(h.Variables)); err != nil {
			return fmt.Errorf("header %.64q: %w", h.Name, err)
		}
	}
	return checkVariables(r.Variables)
}

// withoutVariables returns a URL that is valid if a template of a URL is. A variable at the beginning
// stands for any URL.
func withoutVariables(template string) string {
	if at := templatePattern.FindStringIndex(template); at != nil && at[0] == 0 {
		template = "https://host/" + template[at[1]:]
	}
	return templatePattern.ReplaceAllString(template, "1")
}

func checkVariables(all map[string]Input) error {
	if len(all) > maxInputs {
		return fmt.Errorf("invalid variables: has %d, must have at most %d", len(all), maxInputs)
	}
	for name, input := range all {
		if !variablePattern.MatchString(name) {
			return fmt.Errorf("invalid name %.64q of a variable: must be letters, digits and underscores", name)
		}
		if err := input.check(); err != nil {
			return fmt.Errorf("variable %.64q: %w", name, err)
		}
	}
	return nil
}

func (i *Input) check() error {
	switch i.Format {
	case "", "string", "number", "boolean", "filepath":
	default:
		return fmt.Errorf("invalid format %.64q: must be string, number, boolean or filepath", i.Format)
	}
	if len(i.Choices) > maxInputs {
		return fmt.Errorf("invalid choices: has %d, must have at most %d", len(i.Choices), maxInputs)
	}
	return nil
}

// Endpoints returns the URLs of the remotes that need no variables.
func (c *Card) Endpoints() []string {
	var all []string
	for _, r := range c.Remotes {
		if !strings.Contains(r.URL, "{") {
			all = append(all, r.URL)
		}
	}
	return all
}
