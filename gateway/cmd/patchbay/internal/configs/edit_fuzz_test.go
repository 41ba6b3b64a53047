package configs_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/BurntSushi/toml"
	"go.yaml.in/yaml/v4"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/configs"
	"github.com/patchbay-mcp/patchbay/gateway/internal/jsonc"
	"github.com/patchbay-mcp/patchbay/host/config"
)

// textsOf are files that the fuzzer changes, by application.
var textsOf = map[string][]string{
	"codex": {
		"model = \"o4\" # m\n[mcp_servers.a]\ncommand = 'x' # a\nargs = [\"a\", # b\n\"]\"]\n[mcp_servers.a.env]\nK = \"v\"\n[[t]]\nx=1\n",
		"[mcp_servers]\nb.command = \"x\"\npatchbay = {command = \"old\", args = []}\n# end",
		"mcp_servers.a.command = \"x\"\r\n[mcp_servers.\"patchbay\"]\r\ncommand = '''\r\n[x]'''\r\n# c\r\n[mcp_servers.patchbay.env]\r\nA='1'\r\n[z]\r\n",
		"mcp_servers = {a = {command = \"x\"}}\n", "s = \"\"\"\n[mcp_servers.patchbay]\\\"\"\"\"\n\n\n", "\uFEFFa.'b c'.d = 1979-05-27\n",
	},
	"goose": {
		"# g\nextensions:\n  a: # one\n    type: stdio\n    cmd: x\n    args: [\"a\", 'b']\n  patchbay:\n    cmd: old\n\n# end\nother: |\n  extensions:\n   x\n",
		"extensions: {}\n", "extensions: ~ # none\nx: *a\n", "--- # d\n\"extensions\":\n    - 1\n", "{extensions: {a: {cmd: x}}, b: 1}",
		"x: &a {b: 1}\nextensions:\r\n  a: *a\r\n  <<: {patchbay: {cmd: y}}\r\n", "extensions:\n  ? a\n  : {cmd: x}\nz: >-\n  # no\n\n",
		"extensions:\n {}\n: \n", "#\r00:", "\r ", "\r\n\r", "%YAML 1.2\n---\nextensions: {patchbay: {\"cmd\": \"x\"}, b: !!str 1}\n...\n",
	},
	"zed": {
		"// z\n{\n  \"context_servers\": {\n    \"a\": {\"command\": \"x\"}, // a\n  },\n  \"patchbay\": 1, /* b */\n}\n",
		"{\"patchbay\": 1/**/}", "{\"context_servers\":{\"patchbay\":{\"command\":1,\"x\":[]},\"b\":{}}}", "{}", "\uFEFF{ // e\r\n\"context_servers\" : {}\r\n}",
	},
}

// decodedFile returns a file without an entry, and whether it is valid for decoders that the edits do
// not use the positions of. An object with no other entry is the same as none.
func decodedFile(app, text, within, name string) (all map[string]any, ok bool) {
	var err error
	switch app {
	case "codex":
		err = toml.Unmarshal([]byte(text), &all)
	case "goose":
		if strings.Trim(text, " \t\r\n\uFEFF") != "" {
			err = yaml.Load([]byte(text), &all)
		}
	default:
		if !jsonc.IsBlank([]byte(text)) {
			var plain []byte
			if plain, err = config.Plain([]byte(text)); err == nil {
				err = json.Unmarshal(plain, &all)
			}
		}
	}
	if all = maps.Clone(all); all == nil {
		all = map[string]any{}
	}
	switch servers := all[within].(type) {
	case map[string]any:
		servers = maps.Clone(servers)
		delete(servers, name)
		if all[within] = servers; len(servers) == 0 {
			delete(all, within)
		}
	case nil:
		delete(all, within)
	}
	return all, err == nil
}

// replacedPart returns the part of a text that another does not have, if that differs in one place.
func replacedPart(text, edited string) string {
	start := 0
	for start < min(len(text), len(edited)) && text[start] == edited[start] {
		start++
	}
	end := 0
	for end < min(len(text), len(edited))-start && text[len(text)-1-end] == edited[len(edited)-1-end] {
		end++
	}
	return text[start : len(text)-end]
}

// isWithin reports whether all bytes of a text are in another, in order.
func isWithin(text, edited string) bool {
	for i := 0; i < len(edited) && text != ""; i++ {
		if text[0] == edited[i] {
			text = text[1:]
		}
	}
	return text == ""
}

// An edit of any text fails, or it keeps the other values, and each byte outside the entry.
func FuzzEditOfText(f *testing.F) {
	apps := slices.Sorted(maps.Keys(textsOf))
	for i, app := range apps {
		for _, text := range textsOf[app] {
			f.Add(uint8(i), text)
		}
	}
	within := map[string]string{"codex": "mcp_servers", "goose": "extensions", "zed": "context_servers"}
	f.Fuzz(func(t *testing.T, n uint8, text string) {
		app := apps[int(n)%len(apps)]
		checkEditOfText(t, app, within[app], text)
	})
}

func checkEditOfText(t *testing.T, app, within, text string) {
	const name = "patchbay"
	added, err := configs.Install(app, []byte(text), name, gatewayCommand)
	without, absent := configs.Uninstall(app, []byte(text), name)
	want, ok := decodedFile(app, text, within, name)
	if !ok {
		if err == nil && app != "goose" { // an empty mapping of YAML need not be one
			t.Fatalf("%s: %q is not valid, and became %q", app, text, added)
		}
		return
	}
	for _, edited := range []struct {
		text []byte
		err  error
	}{{added, err}, {without, absent}} {
		if edited.err != nil {
			continue
		}
		if got, ok := decodedFile(app, string(edited.text), within, name); !ok || !sameValues(got, want) {
			t.Fatalf("%s: %q became %q", app, text, edited.text)
		}
	}
	if err != nil {
		return
	}
	if errors.Is(absent, jsonc.ErrAbsent) && !isWithin(text, string(added)) {
		if part := replacedPart(text, string(added)); strings.Trim(part, " \t\r\n{}~nulNUL") != "" {
			t.Fatalf("%s: %q lost %q: %q", app, text, part, added)
		}
	}
	removed, err := configs.Uninstall(app, added, name)
	if err != nil {
		t.Fatalf("%s: cannot remove from %q: %v", app, added, err)
	}
	if got, ok := decodedFile(app, string(removed), within, name); !ok || !sameValues(got, want) {
		t.Fatalf("%s: %q became %q after removal from %q", app, text, removed, added)
	}
}

// sameValues reports whether two files have the same values. Not a number is itself.
func sameValues(a, b map[string]any) bool {
	return reflect.DeepEqual(a, b) || fmt.Sprintf("%#v", a) == fmt.Sprintf("%#v", b)
}
