package check

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
	"github.com/patchbay-mcp/patchbay/gateway/internal/rawjson"
)

// reference matches ${…}. Text without a closing brace is literal.
var reference = regexp.MustCompile(`\$\{([^{}]*)\}`)

// dollar is the expression of a literal dollar sign.
const dollar = "$"

// expressions returns the expressions of ${…} in the strings of the call, in their order.
func (c *Call) expressions() (all []string) {
	collect := func(expression string) ([]byte, error) {
		if expression != dollar {
			all = append(all, expression)
		}
		return []byte(`""`), nil
	}
	_, _ = substitute(c.Params, collect) // collect returns no error
	for _, a := range c.Expect {
		if a.hasVariables() {
			_, _ = substitute(a.operand, collect)
		}
	}
	return all
}

func (a *Assertion) hasVariables() bool { return a.kind == "equals" || a.kind == "contains" }

// substitute replaces ${…} in the strings of a value, except the names of members; all other bytes
// stay. value returns the JSON that an expression stands for. It replaces a string that consists of
// the expression, and becomes text within a longer string.
func substitute(raw []byte, value func(expression string) ([]byte, error)) ([]byte, error) {
	return mapStrings(raw, func(text string) ([]byte, error) { return expand(text, value) })
}

// mapStrings replaces the strings of a value, except the names of members, by the JSON that replace
// returns for their text; nil keeps the string.
func mapStrings(raw []byte, replace func(text string) ([]byte, error)) ([]byte, error) {
	if !bytes.ContainsAny(raw, `$\`) { // the backslash may escape a dollar sign
		return raw, nil
	}
	var out []byte
	for at := 0; at < len(raw); {
		if raw[at] != '"' {
			out = append(out, raw[at])
			at++
			continue
		}
		end, err := rawjson.End(raw, at)
		if err != nil {
			return nil, err
		}
		quoted, next := raw[at:end], bytes.TrimLeft(raw[end:], " \t\r\n")
		if at = end; len(next) == 0 || next[0] != ':' {
			text, _ := rawjson.Unquote(quoted) // valid
			switch with, err := replace(text); {
			case err != nil:
				return nil, err
			case with != nil:
				quoted = with
			}
		}
		if out = append(out, quoted...); len(out) > term.MaxInput {
			return nil, fmt.Errorf("too large with variables: want at most %s", term.FormatBytes(term.MaxInput))
		}
	}
	return out, nil
}

// expand returns the JSON of a text with its variables replaced, or nil if the text contains none.
func expand(text string, value func(expression string) ([]byte, error)) ([]byte, error) {
	if m := reference.FindStringSubmatch(text); m == nil {
		return nil, nil
	} else if m[0] == text {
		return value(m[1])
	}
	var b strings.Builder
	for text != "" && b.Len() <= term.MaxInput { // mapStrings returns the error
		m := reference.FindStringSubmatchIndex(text)
		if m == nil {
			b.WriteString(text)
			break
		}
		v, err := value(text[m[2]:m[3]])
		if err != nil {
			return nil, err
		}
		plain := string(v)
		if rawjson.Kind(v) == '"' {
			plain, _ = rawjson.Unquote(v) // valid
		}
		b.WriteString(text[:m[0]] + plain)
		text = text[m[1]:]
	}
	return rawjson.AppendQuote(nil, b.String()), nil
}

// escape returns a value in which ${ has no meaning.
func escape(raw []byte) ([]byte, error) {
	return mapStrings(raw, func(text string) ([]byte, error) {
		if !strings.Contains(text, "${") {
			return nil, nil
		}
		return rawjson.AppendQuote(nil, strings.ReplaceAll(text, "${", "${$}{")), nil
	})
}

// value returns the value of a variable.
func (r *runner) value(expression string) ([]byte, error) {
	if expression == dollar {
		return []byte(`"$"`), nil
	}
	if v, found := r.values[expression]; found {
		return v, nil
	}
	return nil, fmt.Errorf("variable ${%.64s} has no value: the call that sets it failed", expression)
}
