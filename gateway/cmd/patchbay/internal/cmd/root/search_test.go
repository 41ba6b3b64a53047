package root

import (
	"context"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/connect"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/mcp"
)

func TestSearchSelectsFromLists(t *testing.T) {
	s := mcp.NewServer("many", "1", nil)
	for _, tool := range []*mcp.Tool{{Name: "get_weather", Description: "Forecast of a City"},
		{Name: "roll", Title: "Cube", Description: "Roll Dice"}, {Name: "city_map", Description: hostile}} {
		mcp.AddTool(s, tool, func(context.Context, struct{}) (string, error) { return "", nil })
	}
	mcp.AddResource(s, &mcp.Resource{URI: "x://forecast", Name: "f", Description: "Weather"},
		func(context.Context, string) (string, error) { return "", nil })
	mcp.AddPrompt(s, &mcp.Prompt{Name: "ask", Description: "About the weather"},
		func(context.Context, struct{}) (string, error) { return "", nil })
	url := listenHTTP(t, s)
	for line, want := range map[string]string{
		"tools --search city":               "city_map get_weather",
		"tools --search CITY":               "city_map get_weather",
		"tools --search forecast_city":      "get_weather",
		"tools --search dice":               "roll",
		"tools --search city --search Fore": "get_weather",
		"tools --search none":               "",
		"resources --search weather":        "x://forecast",
		"resources --search forecast":       "x://forecast",
		"prompts --search weather":          "ask",
		"prompts --search ask_weather":      "ask",
	} {
		var args []string
		for _, word := range strings.Fields(line) {
			args = append(args, strings.ReplaceAll(word, "_", " "))
		}
		for _, revision := range connect.Revisions() {
			o := patchbay(t, "", append(args, "--revision", revision, url)...)
			var names []string
			for text := range strings.Lines(o.stdout) {
				if !strings.HasPrefix(text, " ") {
					names = append(names, strings.Fields(text)[0])
				}
			}
			if got := strings.Join(names, " "); got != want || o.status != exit.OK {
				t.Errorf("%s, %s: exit code %d, got %q, want %q; %s", line, revision, o.status, got, want, o.stderr)
			}
			if want == "" && o.stderr != "None of 3 tools contains \"none\" (--search).\n" {
				t.Errorf("%s: %s", line, o.stderr)
			}
		}
	}
	if o := patchbay(t, "", "tools", "--json", "--search", "none", url); o.stdout != "{\"tools\":[]}\n" {
		t.Errorf("--json: %s", o.stdout)
	}
	if o := patchbay(t, "", "tools", url, "roll", "--search", "roll"); o.status != exit.Usage {
		t.Errorf("a name and --search: exit code %d, want %d", o.status, exit.Usage)
	}
	if o := patchbay(t, "", "tools", "--search", "cube", url); !strings.HasPrefix(o.stdout, "roll") {
		t.Errorf("title: %s%s", o.stdout, o.stderr)
	}
	demo := listenHTTP(t, newServer("demo"))
	if o := patchbay(t, "", "templates", "--search", "sentence city", demo); !strings.HasPrefix(o.stdout, "demo://cities") {
		t.Errorf("templates: %s%s", o.stdout, o.stderr)
	}
}
