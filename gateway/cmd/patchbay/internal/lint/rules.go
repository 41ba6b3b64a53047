package lint

import "slices"

// A Rule is a requirement that is checked.
type Rule struct {
	ID       string   `json:"id"`
	Severity Severity `json:"severity"`
	Text     string   `json:"text"`   // the requirement
	Source   string   `json:"source"` // page of the specification and revisions, or the reason
	Fix      string   `json:"fix"`    // how to meet it
}

// Rules returns all rules.
func Rules() []*Rule { return rules }

// Find returns the rule of an id, or nil.
func Find(id string) *Rule {
	for _, r := range rules {
		if r.ID == id {
			return r
		}
	}
	return nil
}

// A Severity is how bad a finding is.
type Severity string

// Severities, the worst first.
const (
	// Error: the specification forbids it, or clients cannot use the item.
	Error Severity = "error"
	// Warning: the specification advises against it, or it causes problems in clients and models.
	Warning Severity = "warning"
	// Info: the item could be better.
	Info Severity = "info"
)

// AtLeast reports whether s is as bad as other, or worse.
func (s Severity) AtLeast(other Severity) bool {
	order := []Severity{Error, Warning, Info}
	return slices.Index(order, s) <= slices.Index(order, other)
}

// Sources that several rules share.
const (
	fromBase       = "schema, BaseMetadata (all revisions)"
	fromToolNames  = "server/tools, Tool Names: SHOULD (since 2025-11-25)"
	fromTool       = "schema, Tool (all revisions)"
	fromSchemas    = "basic, JSON Schema Usage (since 2025-11-25)"
	fromHints      = "schema, ToolAnnotations (since 2025-03-26)"
	fromModels     = "not in the specification: a rule of common model interfaces"
	fromPractice   = "not in the specification: the text is all that a model or user has to choose by"
	fromCapability = "basic/lifecycle, Capability Negotiation; server/discover (2026-07-28)"
	fromResource   = "schema, Resource (all revisions)"
	fromVersions   = "basic/versioning (2026-07-28); basic/lifecycle, Version Negotiation"
)

// rules lists all rules, by subject. An ID must not change: users disable rules by it.
var rules = []*Rule{
	{"name-missing", Error, "Tools, prompts, resources and templates have a name.", fromBase,
		"Add the member name, a string."},
	{"name-duplicate", Error, "No two tools, and no two prompts, have the same name.", fromToolNames,
		"Rename one of them: clients can only call one."},
	{"name-case", Warning, "Names of tools differ by more than upper and lower case.",
		fromToolNames + ": names are case-sensitive, models and people confuse them", "Rename one of them."},
	{"name-characters", Warning, "The name of a tool has only A-Z a-z 0-9 _ - and dot.", fromToolNames,
		"Rename the tool, such as to get_weather."},
	{"name-length", Warning, "The name of a tool has 1 to 128 characters.", fromToolNames, "Shorten the name."},
	{"name-portable", Info, "The name of a tool has at most 64 characters of A-Z a-z 0-9 _ -.", fromModels,
		"Use _ for other characters, and shorten the name: some hosts rename or refuse the tool."},

	{"title-missing", Info, "A tool has a title for people.", "schema, BaseMetadata (since 2025-06-18); " +
		"ToolAnnotations.title (2025-03-26)", "Add title, such as \"Get weather\"."},
	{"title-duplicate", Warning, "No two tools have the same title.", fromPractice, "Give each its own title."},
	{"title-long", Warning, "A title has at most 100 characters.", fromPractice,
		"Shorten the title, and put the rest into the description."},

	{"tool-description-missing", Warning, "A tool has a description.", fromTool + "; " + fromPractice,
		"Say what the tool does and when to use it."},
	{"description-missing", Info, "Prompts and resource templates have a description.", fromPractice,
		"Say what it contains or is for."},
	{"description-short", Warning, "The description of a tool has at least 12 bytes.", fromPractice,
		"Say what the tool does, with what, and when to use it."},
	{"description-name", Warning, "The description of a tool says more than its name.", fromPractice,
		"Say what the tool does and when to use it."},
	{"description-long", Warning, "A description has at most 1024 characters.", fromModels,
		"Shorten it, and move details to the descriptions of arguments: some models refuse or cut it."},
	{"description-duplicate", Warning, "No two tools have the same description.", fromPractice,
		"Say in each how it differs from the other."},
	{"hidden-characters", Error, "Texts and names have no invisible, control or direction-changing characters.",
		"server/tools, Security Considerations: a user must be able to see what a model reads",
		"Remove the characters."},

	{"input-schema-missing", Error, "A tool has an inputSchema that is an object, not null.", fromTool,
		`Use {"type": "object", "additionalProperties": false} for a tool without arguments.`},
	{"input-schema-type", Error, `The type of an inputSchema is "object".`, fromTool,
		"Put the value into a property of an object."},
	{"input-schema-composition", Warning, "An inputSchema has no anyOf, oneOf or allOf at its root.", fromModels,
		"Move it into a property, or split the tool: some models refuse the tool."},
	{"input-schema-open", Info, "A tool without arguments sets additionalProperties to false.",
		"server/tools, Data Types: recommended (since 2025-11-25)", `Add "additionalProperties": false.`},
	{"output-schema-type", Error, `The type of an outputSchema is "object" before revision 2026-07-28.`,
		"schema, Tool (2025-06-18, 2025-11-25)", "Put the value into a property of an object."},
	{"schema-invalid", Error, "A schema is valid JSON Schema of its dialect.", fromSchemas + ": MUST",
		"Correct the keyword that is named."},
	{"schema-dialect", Warning, "A schema is of JSON Schema 2020-12, the default, or draft-07.",
		fromSchemas + ": clients MUST support 2020-12 only", "Remove $schema, or name 2020-12."},
	{"schema-reference", Error, "A $ref refers to a part of the same schema.",
		"basic, JSON Schema Usage (2026-07-28): other documents are not fetched, such schemas SHOULD be rejected",
		"Copy the definition into $defs, and refer to it there."},
	{"schema-pattern", Warning, "A regular expression has neither lookaround nor backreferences.",
		"JSON Schema 2020-12, section 6.4: interoperable regular expressions", "Simplify the pattern."},
	{"schema-required", Error, "Properties that are required exist.",
		"JSON Schema 2020-12, Validation, section 6.5.3: without a schema models cannot know the value",
		"Add the property, or remove its name from required."},
	{"schema-default", Warning, "A default is valid by its own schema.",
		"JSON Schema 2020-12, Validation, section 9.2: RECOMMENDED", "Correct the default or the schema."},
	{"schema-depth", Warning, "A schema has at most 6 levels of objects and arrays.", fromModels,
		"Flatten it: models make more mistakes in deep values, and some refuse the schema."},
	{"schema-size", Warning, "A schema has at most 16 kB, and less than 256 kB and 10,000 parts in any case.",
		"basic, JSON Schema Usage (2026-07-28): clients bound schemas; models pay for every byte",
		"Split the tool, or describe the value in words."},
	{"header-parameter", Error, "x-mcp-header annotations are valid.",
		"basic/transports/streamable-http, Custom Headers (2026-07-28): clients leave the tool out",
		"Correct or remove the annotation."},
	{"argument-description", Warning, "Arguments have a description.", fromPractice,
		"Add description to each: its meaning, unit and form."},
	{"argument-type", Warning, "Arguments have a type, an enum or a reference.", fromPractice, "Add a type."},

	{"annotations-missing", Warning, "A tool has annotations.", fromHints +
		": without them, it counts as destructive and as interacting with external systems",
		"Set readOnlyHint, and destructiveHint and openWorldHint to false where that is true."},
	{"annotations-invalid", Error, "Annotations of tools are an object whose hints are true or false.", fromHints,
		"Use true and false without quotes."},
	{"annotations-contradictory", Warning, "A tool that is read-only is not destructive.", fromHints,
		"Remove one of the two hints."},
	{"annotations-name", Warning, "The hints of a tool do not contradict the verb that its name begins with.",
		fromHints, "Correct the hints or the name."},

	{"tool-tokens", Warning, "A tool costs at most about 1,000 tokens.",
		"not in the specification: every conversation pays it", "Shorten descriptions and the schema."},
	{"total-tokens", Warning, "All tools together cost at most about 10,000 tokens.",
		"not in the specification: every conversation pays it", "Offer fewer tools, or shorten them."},
	{"tools-many", Info, "A server has at most 40 tools.",
		"not in the specification: hosts bound the tools that they offer to models", "Merge or split the server."},
	{"instructions-long", Info, "Instructions have at most 2,000 characters.",
		"not in the specification: hosts cut them, and every conversation pays them", "Shorten them."},
	{"icon-invalid", Warning, "An icon has a src that is an https or data URI.",
		"basic, Icons: MUST (since 2025-11-25)",
		"Use https://… or data:image/…."},

	{"prompt-argument-name", Error, "Arguments of prompts have different names.",
		"schema, PromptArgument (all revisions)",
		"Name each argument, and differently."},
	{"prompt-argument-description", Info, "Arguments of prompts have a description.", fromPractice,
		"Say what to put in."},

	{"uri-invalid", Error, "The URI of a resource is valid by RFC 3986.", fromResource,
		"Add a scheme, and percent-encode other characters."},
	{"uri-duplicate", Error, "No two resources have the same URI, and no two templates the same pattern.", fromResource,
		"Remove one of them, or change its URI."},
	{"template-invalid", Error, "A URI template is valid by RFC 6570, and begins with a scheme.",
		"server/resources, Resource Templates (all revisions)", "Correct the template, such as file:///logs/{day}."},
	{"template-constant", Warning, "A URI template has a variable.",
		"server/resources, Resource Templates (all revisions)",
		"List it as a resource."},
	{"mime-type-missing", Info, "A resource has a MIME type.", fromResource, "Add mimeType."},
	{"mime-type-invalid", Warning, "A MIME type is of the form type/subtype.", "RFC 6838; " + fromResource,
		"Correct it, such as text/markdown."},
	{"size-invalid", Error, "The size of a resource is a number of bytes.", fromResource, "Correct or remove it."},
	{"resource-annotations", Error, "The audience is user or assistant, the priority between 0 and 1, " +
		"lastModified an ISO 8601 time.", "server/resources, Annotations (all revisions)", "Correct the annotation."},

	{"list-broken", Error, "Lists can be read to the end.", "server/utilities/pagination (all revisions)",
		"Correct the response."},
	{"list-order", Warning, "Tools are listed in the same order each time.",
		"server/tools, Listing Tools: SHOULD (2026-07-28); a model's prompt cache depends on it", "Sort the list."},
	{"capability-not-served", Error, "What a server declares, it serves.", fromCapability + "; server/tools: MUST",
		"Serve the method, or remove the capability."},
	{"capability-not-declared", Error, "What a server serves, it declares.", fromCapability +
		": clients do not use what is not declared", "Declare the capability."},
	{"capability-empty", Info, "A server that declares tools, prompts or resources has some.", fromCapability,
		"Remove the capability, unless items are added later."},
	{"server-name-missing", Error, "A server has a name and a version.", "schema, Implementation (all revisions)",
		"Set both."},
	{"revision-newest", Info, "A server speaks the newest revision.", fromVersions, "Update the SDK of the server."},
	{"revision-sessions", Info, "A server speaks a revision before 2026-07-28.", fromVersions,
		"Support sessions, if clients of older revisions are to connect."},
}
