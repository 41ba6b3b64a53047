package lint

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/patchbay-mcp/patchbay/gateway/internal/rawjson"
	"github.com/patchbay-mcp/patchbay/visible"
)

const (
	maxTitle       = 100  // characters; a menu or button shows about 40
	maxDescription = 1024 // characters; the limit of function descriptions of a large provider
	minDescription = 12   // bytes: a verb and an object in English, four characters in Chinese
)

// A collector finds values that occur twice. It maps a value to the place of its first occurrence.
type collector map[string]string

// seen returns where a value was seen before, or "".
func (k collector) seen(value, where string) string {
	first := k[value]
	if value != "" && first == "" {
		k[value] = where
	}
	return first
}

// checkTexts checks name, title and description of an item, and all strings for hidden characters.
func (c *checker) checkTexts(it *item) {
	if it.name == "" {
		c.add("name-missing", it.where, "missing name")
	}
	if n := utf8.RuneCountInString(it.title); n > maxTitle {
		c.add("title-long", it.where, "the title has %d characters", n)
	}
	if n := utf8.RuneCountInString(it.description); n > maxDescription {
		c.add("description-long", it.where, "the description has %d characters", n)
	}
	if it.description == "" && (it.kind == "prompt" || it.kind == "template") {
		c.add("description-missing", it.where, "no description")
	}
	c.checkHidden(it.where, "", it.raw)
	c.checkIcons(it)
}

// checkHidden checks every string of a JSON value, and the keys of its objects. path is its place.
func (c *checker) checkHidden(where, path string, raw []byte) {
	report := func(text, path string) {
		if r, found := visible.First(text); found {
			c.add("hidden-characters", where, "%s contains U+%04X", shown(strings.TrimPrefix(path, ".")), r)
		}
	}
	switch rawjson.Kind(raw) {
	case '"':
		text, _ := rawjson.Unquote(raw)
		report(text, path)
	case '{':
		for key, value := range rawjson.Members(raw) {
			if string(key) == "_meta" {
				continue // for programs
			}
			report(string(key), path+"."+string(key))
			c.checkHidden(where, path+"."+string(key), value)
		}
	case '[':
		for value := range rawjson.Elements(raw) {
			c.checkHidden(where, path+"[]", value)
		}
	}
}

func (c *checker) checkIcons(it *item) {
	icons, _ := rawjson.Get(it.raw, "icons")
	for icon := range rawjson.Elements(icons) {
		src := rawjson.GetString(icon, "src")
		scheme, _, _ := strings.Cut(strings.ToLower(src), ":")
		if scheme != "https" && scheme != "data" {
			c.add("icon-invalid", it.where, "src %q", shown(src))
		}
	}
}

// plain returns the letters and digits of a text in lower case, to compare texts.
func plain(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) || unicode.IsDigit(r) {
			return unicode.ToLower(r)
		}
		return -1
	}, text)
}
