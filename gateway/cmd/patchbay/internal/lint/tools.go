package lint

import (
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/patchbay-mcp/patchbay/gateway/internal/rawjson"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
)

const (
	maxToolName     = 128    // characters
	maxPortableName = 64     // characters; of functions in the interfaces of several models
	maxToolTokens   = 1000   // per tool
	maxTotalTokens  = 10_000 // of all tools
)

var (
	toolName     = regexp.MustCompile(`^[A-Za-z0-9_.-]*$`)
	portableName = regexp.MustCompile(`^[A-Za-z0-9_-]*$`)
)

func (c *checker) checkTools() {
	names, folded, titles, descriptions := collector{}, collector{}, collector{}, collector{}
	total := 0
	var order []string
	for i, raw := range c.server.Tools {
		t := newItem("tool", i, raw)
		order = append(order, t.name)
		c.checkTexts(t)
		c.checkToolName(t, names, folded)
		c.checkToolTexts(t, titles, descriptions)
		c.checkInput(t)
		c.checkOutput(t)
		c.checkAnnotations(t)
		total += c.addCost(t)
	}
	if n := len(c.server.Tools); n > maxTools {
		c.add("tools-many", "tools", "%d tools", n)
	}
	if total > maxTotalTokens {
		c.add("total-tokens", "tools", "about %d tokens", total)
	}
	if c.server.ToolsAgain != nil && !slices.Equal(order, c.server.ToolsAgain) {
		c.add("list-order", "tools", "two lists in a row differ")
	}
}

func (c *checker) checkToolName(t *item, names, folded collector) {
	if t.name == "" {
		return
	}
	first := names.seen(t.name, t.where)
	other := folded.seen(strings.ToLower(t.name), t.where)
	switch {
	case first != "":
		c.add("name-duplicate", t.where, "two tools have this name")
	case other != "":
		c.add("name-case", t.where, "differs from %s by upper and lower case only", other)
	}
	n := utf8.RuneCountInString(t.name)
	switch {
	case !toolName.MatchString(t.name):
		c.add("name-characters", t.where, "%q has other characters", shown(t.name))
	case n > maxToolName:
		c.add("name-length", t.where, "%d characters", n)
	case n > maxPortableName || !portableName.MatchString(t.name):
		c.add("name-portable", t.where, "%d characters, %q", n, shown(t.name))
	}
}

func (c *checker) checkToolTexts(t *item, titles, descriptions collector) {
	if t.title == "" && isSince(c.server.Revision, driver.June2025) {
		c.add("title-missing", t.where, "no title")
	}
	if first := titles.seen(t.title, t.where); first != "" {
		c.add("title-duplicate", t.where, "the title %q is also that of %s", shown(t.title), first)
	}
	if first := descriptions.seen(t.description, t.where); first != "" {
		c.add("description-duplicate", t.where, "the description is also that of %s", first)
	}
	switch said := plain(t.description); {
	case t.description == "":
		c.add("tool-description-missing", t.where, "no description")
	case said == plain(t.name) || said == plain(t.title):
		c.add("description-name", t.where, "the description %q repeats the name", shown(t.description))
	case len(t.description) < minDescription:
		c.add("description-short", t.where, "the description is %q", t.description)
	}
}

// Verbs at the beginning of names, which describe the effect of a tool.
var (
	destroyingVerbs = []string{"delete", "remove", "destroy", "purge", "erase", "drop", "wipe"}
	readingVerbs    = []string{"get", "list", "read", "search", "find", "show", "describe", "fetch"}
)

func (c *checker) checkAnnotations(t *item) {
	raw, ok := rawjson.Get(t.raw, "annotations")
	if !ok {
		if isSince(c.server.Revision, driver.March2025) {
			c.add("annotations-missing", t.where, "no annotations")
		}
		return
	}
	if rawjson.Kind(raw) != '{' {
		c.add("annotations-invalid", t.where, "annotations are %s", shown(string(raw)))
		return
	}
	hint := func(name string) (value, isSet bool) {
		flag, ok := rawjson.Get(raw, name)
		kind := rawjson.Kind(flag)
		if ok && kind != 't' && kind != 'f' {
			c.add("annotations-invalid", t.where, "%s is %s", name, shown(string(flag)))
		}
		return kind == 't', kind == 't' || kind == 'f'
	}
	readOnly, hasReadOnly := hint("readOnlyHint")
	destructive, hasDestructive := hint("destructiveHint")
	_, hasIdempotent := hint("idempotentHint")
	_, hasOpenWorld := hint("openWorldHint")
	verb := firstWord(t.name)
	switch {
	case !hasReadOnly && !hasDestructive && !hasIdempotent && !hasOpenWorld:
		c.add("annotations-missing", t.where, "annotations without a hint")
	case readOnly && destructive:
		c.add("annotations-contradictory", t.where, "readOnlyHint and destructiveHint are both true")
	case readOnly && slices.Contains(destroyingVerbs, verb):
		c.add("annotations-name", t.where, "readOnlyHint is true, but the name begins with %q", verb)
	case destructive && slices.Contains(readingVerbs, verb):
		c.add("annotations-name", t.where, "destructiveHint is true, but the name begins with %q", verb)
	}
}

// firstWord returns the first word of a name such as get_weather, get-weather or getWeather.
func firstWord(name string) string {
	end := strings.IndexFunc(name, func(r rune) bool { return r < 'a' || r > 'z' })
	if end < 0 {
		return name
	}
	return name[:end]
}

// addCost adds the cost of a tool to the report, and returns its tokens.
func (c *checker) addCost(t *item) int {
	schema, _ := rawjson.Get(t.raw, "inputSchema")
	text := t.name + t.description + string(schema)
	cost := Cost{Name: t.name, Bytes: len(text), Tokens: Tokens(text)}
	if cost.Tokens > maxToolTokens {
		c.add("tool-tokens", t.where, "about %d tokens (%d bytes)", cost.Tokens, cost.Bytes)
	}
	c.report.Costs = append(c.report.Costs, cost)
	return cost.Tokens
}

// Tokens estimates the tokens of a text: a token per 4 ASCII characters, and a token per 2 bytes of
// other characters, rounded up. Tokenizers differ by about 25%.
func Tokens(text string) int {
	ascii := 0
	for i := range len(text) {
		if text[i] < utf8.RuneSelf {
			ascii++
		}
	}
	return (ascii + 2*(len(text)-ascii) + 3) / 4
}
