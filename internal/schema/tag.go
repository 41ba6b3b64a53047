package schema

import (
	"fmt"
	"slices"
	"strings"
)

// An option is a key=value of a `jsonschema` tag.
type option struct{ key, value string }

var tagOptions = []string{
	"title", "description", "enum", "titles", "default", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum",
	"multipleOf", "minLength", "maxLength", "pattern", "format", "minItems", "maxItems", "uniqueItems", "header",
}

// checkBareWord refuses words that other libraries allow in this tag and that would become text.
func checkBareWord(word string) error {
	rule := "a field is required unless it is a pointer, has omitempty or omitzero, or has a default"
	switch word = strings.TrimSpace(word); word {
	case "required", "optional":
	case "nullable":
		rule = "an optional field, such as a pointer, accepts null"
	default:
		return nil
	}
	return fmt.Errorf("%q is not an option: %s", word, rule)
}

// parseTag splits a `jsonschema` tag. Its free text is the description; a comma before a known key
// and = begins an option, and any other comma belongs to the text or to the value before it. A key
// must not be similar to a known key, and a bare word must not stand alone.
func parseTag(tag string) (options []option, err error) {
	for _, part := range strings.Split(tag, ",") {
		if err := checkBareWord(part); err != nil {
			return nil, err
		}
	}
	key, start := "description", 0
	if k, rest, known := keyAt(tag, 0); known {
		key, start = k, rest
	} else if like := likeOption(k); like != "" {
		return nil, fmt.Errorf("unknown option %q, did you mean %q?", k, like)
	}
	add := func(end int) error {
		value := strings.TrimSpace(tag[start:end])
		if key == "description" && value == "" {
			return nil
		}
		if slices.ContainsFunc(options, func(o option) bool { return o.key == key }) {
			return fmt.Errorf("%s occurs twice", key)
		}
		options = append(options, option{key, value})
		return nil
	}
	for i := start; i < len(tag); i++ {
		if tag[i] != ',' {
			continue
		}
		next, rest, known := keyAt(tag, i+1)
		if !known {
			if like := likeOption(next); like != "" {
				return nil, fmt.Errorf("unknown option %q, did you mean %q?", next, like)
			}
			continue
		}
		if err := add(i); err != nil {
			return nil, err
		}
		key, start, i = next, rest, rest-1
	}
	return options, add(len(tag))
}

// keyAt parses `key=` at an index of a tag. It returns the key, the start of its value, and whether
// the key is known.
func keyAt(tag string, at int) (key string, value int, known bool) {
	text, _, ok := strings.Cut(tag[at:], "=")
	key = strings.TrimSpace(text)
	if !ok || strings.ContainsAny(key, " ,") {
		return "", 0, false
	}
	return key, at + len(text) + 1, slices.Contains(tagOptions, key)
}

// likeOption returns the option that a key misspells or abbreviates, or "".
func likeOption(key string) string {
	const shortest = 3
	for _, o := range tagOptions {
		if len(key) >= shortest && strings.HasPrefix(o, key) {
			return o
		}
	}
	return Nearest(key, tagOptions)
}

// splitList returns the items of a value such as small|medium|large, without the space around them.
func splitList(value string) []string {
	items := strings.Split(value, "|")
	for i := range items {
		items[i] = strings.TrimSpace(items[i])
	}
	return items
}
