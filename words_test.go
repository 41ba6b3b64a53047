package patchbay_test

import (
	"go/ast"
	"go/token"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// refusedWords must not be part of an identifier: they are metaphors, persons, or nouns that only
// this project would know. The standard library, gRPC and the specification have a word for each of
// these things.
var refusedWords = strings.Fields(`
	crew vigil rouse talk talking brought standing gather deaf farewell bury buried young born alarm patience trip lend
	depart linger foresight tally awakened adopt settle bell taker hub tired glance sighting augment unheard manner pays
	asker fly land nowhere provenance grown spare nobody somebody whoever
	util impl helper`)

// refusedNames must not be the name of a package-level type, function or method. As local variables
// some of them are ordinary words.
var refusedNames = strings.Fields(`
	turn link rest watch pack hold take line gate flight zone home reach feed hook reply attend way words look
	given own none oldAge takeBack keptPlace
	manager connector continuation interceptor common`)

// standardNames are identifiers that the standard library chose.
var standardNames = strings.Fields(`RoundTrip roundTrip`)

func TestIdentifiersArePlainWords(t *testing.T) {
	sources(t, func(name string, file *ast.File, set *token.FileSet, _ []byte) {
		declared := declaredNames(file)
		var check func(n ast.Node) bool
		check = func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok {
				ast.Inspect(s.X, check)
				return false // the selected name is checked where it is declared, if that is here
			}
			if id, ok := n.(*ast.Ident); ok {
				checkWords(t, set, id, declared[id])
			}
			return true
		}
		ast.Inspect(file, check)
	})
}

// programErrors are the files whose errors may name fields, because they report mistakes of the program
// that uses the package: in the options of a constructor or the result of a function.
var programErrors = strings.Fields(`
	ext/apps/bridge.go ext/apps/page.go ext/skills/snapshot.go gateway/audit/audit.go host/state.go
	internal/dpop/prover.go internal/dpop/verifier.go
	mcp/client.go mcp/client_call.go mcp/connect.go mcp/input.go mcphttp/session_post.go mcphttp/transport.go
	oauth/authserver/client.go oauth/authserver/keys.go oauth/authserver/metadata.go oauth/authserver/options.go
	oauth/authserver/server.go oauth/oauthclient/grant_enterprise.go`)

var fieldName = regexp.MustCompile(`\b([A-Z]\w*)?(Options|Transport)\.[A-Z]|\bInsecure[A-Z]`)

// TestMessagesDoNotNameFields finds names of Go fields in messages that operators of a program read.
func TestMessagesDoNotNameFields(t *testing.T) {
	found := map[string]bool{}
	sources(t, func(name string, file *ast.File, set *token.FileSet, _ []byte) {
		ast.Inspect(file, func(n ast.Node) bool {
			text, ok := n.(*ast.BasicLit)
			if !ok || text.Kind != token.STRING || !fieldName.MatchString(text.Value) || strings.HasPrefix(name, "examples/") {
				return true
			}
			found[name] = true
			if !slices.Contains(programErrors, name) {
				t.Errorf("%s: %s: say what to configure, not the field", set.Position(text.Pos()), text.Value)
			}
			return true
		})
	})
	for _, name := range programErrors {
		if !found[name] {
			t.Errorf("%s names no field: remove it from programErrors", name)
		}
	}
}

func checkWords(t *testing.T, set *token.FileSet, id *ast.Ident, declared bool) {
	t.Helper()
	name := id.Name
	for _, standard := range standardNames {
		name = strings.ReplaceAll(name, standard, "")
	}
	for _, word := range camelWords(name) {
		if slices.Contains(refusedWords, word) {
			t.Errorf("%s: %s: do not use %q; choose a word of the standard library or the specification",
				set.Position(id.Pos()), id.Name, word)
		}
	}
	if declared && slices.ContainsFunc(refusedNames, func(w string) bool { return strings.EqualFold(w, id.Name) }) {
		t.Errorf("%s: do not use the name %s; choose a noun or verb of the standard library or the specification",
			set.Position(id.Pos()), id.Name)
	}
}

// declaredNames returns the identifiers that name a file's package-level types, functions and
// methods.
func declaredNames(file *ast.File) map[*ast.Ident]bool {
	names := map[*ast.Ident]bool{}
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			names[d.Name] = true
		case *ast.GenDecl:
			for _, s := range d.Specs {
				if s, ok := s.(*ast.TypeSpec); ok {
					names[s.Name] = true
				}
			}
		}
	}
	return names
}

// camelWords splits an identifier at its capitals: "serveLoop" is serve and loop, "newHTTPServer"
// new, http and server.
func camelWords(name string) []string {
	var words []string
	runes := []rune(name)
	start := 0
	for i := 1; i <= len(runes); i++ {
		if i < len(runes) && !isWordStart(runes, i) {
			continue
		}
		words = append(words, strings.ToLower(string(runes[start:i])))
		start = i
	}
	return words
}

func isWordStart(runes []rune, i int) bool {
	if !unicode.IsUpper(runes[i]) {
		return runes[i] == '_'
	}
	return !unicode.IsUpper(runes[i-1]) || i+1 < len(runes) && unicode.IsLower(runes[i+1])
}

func TestCamelWordsSplitsAtCapitals(t *testing.T) {
	for name, want := range map[string][]string{
		"serveLoop":     {"serve", "loop"},
		"newHTTPServer": {"new", "http", "server"},
		"URL":           {"url"},
		"isID":          {"is", "id"},
	} {
		if got := camelWords(name); !slices.Equal(got, want) {
			t.Errorf("camelWords(%q) = %q, want %q", name, got, want)
		}
	}
}

// TestErrorStringsStateTheValueAndTheRule refuses texts such as "its client_id is none": an error states the
// value and the rule.
func TestErrorStringsStateTheValueAndTheRule(t *testing.T) {
	vague := regexp.MustCompile(`\b(is|are) (no|none)\b`)
	sources(t, func(name string, file *ast.File, set *token.FileSet, _ []byte) {
		ast.Inspect(file, func(n ast.Node) bool {
			if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING && vague.MatchString(lit.Value) {
				t.Errorf("%s: %s: state the value and the rule that it breaks", set.Position(lit.Pos()), lit.Value)
			}
			return true
		})
	})
}

// TestDocCommentsUseStandardVerbs refuses "Foo gives" and "Foo tells": the standard library writes
// "Foo returns" and "Foo reports whether".
func TestDocCommentsUseStandardVerbs(t *testing.T) {
	verb := regexp.MustCompile(`^// \w+ (gives|tells|takes back) `)
	sources(t, func(name string, file *ast.File, set *token.FileSet, _ []byte) {
		for _, group := range file.Comments {
			if verb.MatchString(group.List[0].Text) {
				t.Errorf("%s: %s: want a verb that the standard library uses", set.Position(group.Pos()),
					group.List[0].Text)
			}
		}
	})
}

// TestLinesStayShort bounds lines of product code, so that two files fit side by side.
func TestLinesStayShort(t *testing.T) {
	const maxWidth = 120
	sources(t, func(name string, _ *ast.File, _ *token.FileSet, text []byte) {
		number := 0
		for line := range strings.Lines(string(text)) {
			number++
			width := len([]rune(strings.ReplaceAll(strings.TrimRight(line, "\n"), "\t", "    ")))
			if width > maxWidth {
				t.Errorf("%s:%d: %d columns, want at most %d", name, number, width, maxWidth)
			}
		}
	})
}
