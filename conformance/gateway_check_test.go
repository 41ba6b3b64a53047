package conformance_test

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf16"
)

// A judge counts checks.
type judge struct {
	t              *testing.T
	checks, passed int
}

func (j *judge) check(what string, ok bool, got any) {
	j.t.Helper()
	j.checks++
	if ok {
		j.passed++
		return
	}
	j.t.Errorf("%s: got %.600v", what, got)
}

func (j *judge) equal(what, got, want string) {
	j.t.Helper()
	j.check(fmt.Sprintf("%s, want %.300q", what, want), got == want, fmt.Sprintf("%q", got))
}

func (j *judge) contains(what, got string, parts ...string) {
	j.t.Helper()
	for _, part := range parts {
		j.check(fmt.Sprintf("%s, want %q in it", what, part), strings.Contains(got, part), fmt.Sprintf("%q", got))
	}
}

// A listing is what clients of a gateway must find.
type listing struct {
	tools, prompts, resources, templates []string
}

// toolsFor returns the tools that a client without tasks finds. A tool that always becomes a task is for
// clients of 2025-11-25, whose tasks the server has, whether they declare them or not.
func (l listing) toolsFor(revision string) []string {
	return slices.DeleteFunc(slices.Clone(l.tools), func(name string) bool {
		return revision == "2026-07-28" && strings.HasSuffix(name, "simulate-research-query")
	})
}

// modelName is a name that every model API accepts.
var modelName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,48}$`)

// judgeReport checks what a client saw. lossy: the client drops a notification that arrives together
// with the response.
func (j *judge) report(r *gatewayReport, plan gatewayPlan, want listing, revision string, lossy bool) {
	j.equal("revision", r.Revision, revision)
	j.contains("unknown tool", r.Unknown, "no_such_tool")
	j.same("tools", withoutHashes(r.Tools, want.tools), want.toolsFor(revision))
	j.same("prompts", r.Prompts, want.prompts)
	j.same("templates", r.Templates, want.templates)
	j.same("resources", slices.DeleteFunc(r.Resources, func(uri string) bool { // those that other clients have made
		return strings.Contains(uri, "resource/session/") || strings.Contains(uri, "resource%2Fsession%2F")
	}), want.resources)
	if !plan.Plain {
		j.contains("instructions", r.Instructions, "## everything", "get-roots-list")
		for _, name := range slices.Concat(r.Tools, r.Prompts) {
			j.check("name for model APIs", modelName.MatchString(name), name)
		}
	}
	for _, s := range plan.Servers {
		seen := r.Servers[s.Name]
		if seen == nil {
			j.check(s.Name, false, "no report")
			continue
		}
		switch s.Is {
		case "everything":
			j.everything(seen, plan, s.Name, lossy)
		case "filesystem":
			j.filesystem(seen, plan)
		case "memory":
			j.contains("memory", seen.Found, plan.ID, "person", "writes "+plan.ID)
		case "thinking":
			j.contains("thinking", string(seen.Thought), `"thoughtNumber":1`, `"totalThoughts":2`)
		case "fixtures":
			j.fixtures(seen, plan)
		}
	}
}

// withoutHashes replaces the hashes at the end of shortened names by the rest of the original names.
func withoutHashes(got, want []string) []string {
	got = slices.Clone(got)
	for i, name := range got {
		for _, w := range want {
			if len(name) == maxPublicName && len(w) > maxPublicName &&
				strings.HasPrefix(name, w[:maxPublicName-7]+"_") && !slices.Contains(got, w) {
				got[i] = w
			}
		}
	}
	return got
}

// same compares two lists in any order.
func (j *judge) same(what string, got, want []string) {
	j.t.Helper()
	got, want = slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(want))
	less := slices.DeleteFunc(slices.Clone(want), func(s string) bool { return slices.Contains(got, s) })
	more := slices.DeleteFunc(slices.Clone(got), func(s string) bool { return slices.Contains(want, s) })
	j.check(what, slices.Equal(got, want), fmt.Sprintf("%d, missing %q, additional %q", len(got), less, more))
}

// local reports whether a server is a command, which gets the roots of its user.
func local(name string) bool { return name != "remote" && name != "fixtures" }

func (j *judge) everything(r *serverReport, plan gatewayPlan, name string, lossy bool) {
	what := func(s string) string { return name + ": " + s }
	j.equal(what("echo"), r.Echo, "Echo: hé from "+plan.ID)
	j.equal(what("sum"), r.Sum, "The sum of 20 and 22 is 42.")
	j.contains(what("structured"), string(r.Structured), `"temperature":36`)
	j.same(what("image"), r.Image, []string{"image/png"})
	j.check(what("links"), len(r.Links) == 3, r.Links)
	j.check(what("invalid arguments"), r.Wrong, r.Wrong)
	j.contains(what("long call"), r.Long, "completed", "Steps: 3")
	j.check(what("progress"), risesTo1(r.Progress, lossy), r.Progress)
	j.check(what("log message"), r.Logged, r.Logged)
	j.equal(what("cancelled call"), r.Cancelled, "cancelled")
	j.equal(what("call after it"), r.Afterwards, "Echo: still there")
	j.contains(what("form"), r.Form, "Name: Ada", `"action": "accept"`)
	j.contains(what("page"), r.Page, "completed the URL elicitation flow", "https://example.com/consent")
	j.contains(what("sampling"), r.Sample, `"text": "a summary"`, `"model": "test-model"`)
	tag := ""
	if !plan.Plain {
		tag = "[" + name + "] "
	}
	j.equal(what("questions"), strings.Join(r.Asked, "\n"), "form: "+tag+"Please provide inputs for the following fields:\n"+
		"url: "+tag+"Please consent. https://example.com/consent\nsampling")
	if local(name) {
		j.contains(what("roots"), r.Roots, "Current MCP Roots (1 total)", plan.Root)
	} else {
		j.contains(what("roots"), r.Roots, "no roots are currently configured")
	}
	if plan.Plain { // the client of the server has tasks: the gateway
		j.contains(what("sampling as a task of the client"), r.Async, "COMPLETED", "a summary")
	}
	j.everythingData(r, name, plan)
}

func (j *judge) everythingData(r *serverReport, name string, plan gatewayPlan) {
	what := func(s string) string { return name + ": " + s }
	document := "demo://resource/static/document/features.md"
	if !plan.Plain && !local(name) {
		document = "patchbay://" + name + "/demo%3A%2F%2Fresource%2Fstatic%2Fdocument%2Ffeatures.md"
	}
	text, err := os.ReadFile(filepath.Join(filepath.Dir(everything), "docs", "features.md"))
	if err != nil {
		j.t.Error(err)
	}
	var read struct {
		Asked, URI, MimeType string
		Length               int
	}
	_ = json.Unmarshal(r.Read, &read)
	j.equal(what("listed resource"), read.Asked, document)
	j.equal(what("read resource"), read.URI, document)
	j.equal(what("its type"), read.MimeType, "text/markdown")
	j.check(what("its length"), read.Length == len(utf16.Encode([]rune(string(text)))), read.Length)
	j.equal(what("expanded template"), r.Blob, "Resource 7")
	j.check(what("missing resource"), r.Missing == -32602 || r.Missing == -32002, r.Missing)
	j.equal(what("prompt"), r.Prompt, "What's weather in Kyoto?")
	j.same(what("completion"), r.Completion, []string{"Alice"})
	j.same(what("completion of a template"), r.TemplateCompletion, []string{"7"})
	j.check(what("update of a resource"), r.Updated, r.Updated)
	j.contains(what("new resource"), r.Made, plan.ID)
	j.check(what("list change"), r.Changed, r.Changed)
	j.check(what("changed list"), r.Listed, r.Listed)
}

// risesTo1 reports whether progress rises to 1. The last value may be lost.
func risesTo1(progress []float64, lossy bool) bool {
	for i, p := range progress {
		if math.Abs(p-float64(i+1)/3) > 1e-9 {
			return false
		}
	}
	return len(progress) == 3 || lossy && len(progress) == 2
}

func (j *judge) filesystem(r *serverReport, plan gatewayPlan) {
	dir := strings.TrimPrefix(plan.Root, "file://")
	j.check("filesystem: allowed directory", r.Allowed, r.Allowed)
	j.contains("filesystem: written", r.Written, "Successfully wrote")
	text, err := os.ReadFile(filepath.Join(dir, plan.ID+"-new.txt"))
	j.check("filesystem: written file", err == nil && string(text) == "new", string(text))
	j.equal("filesystem: read", string(r.Read), `"hé\nllo"`)
	j.check("filesystem: other directory refused", r.Denied, r.Denied)
}

func (j *judge) fixtures(r *serverReport, plan gatewayPlan) {
	roots, tag := "0 roots", "[fixtures] " // a server over HTTP gets no roots
	if plan.Plain {
		roots, tag = "1 roots", ""
	}
	j.equal("fixtures: text", r.Simple, "This is a simple text response for testing.")
	j.check("fixtures: progress", slices.Equal(r.Progress, []float64{0, 50, 100}), r.Progress)
	j.check("fixtures: log messages", r.Logged, r.Logged)
	j.contains("fixtures: form", r.Form, `"username":"Ada"`)
	j.equal("fixtures: two rounds", r.Rounds, "Ada likes Ada")
	j.equal("fixtures: three questions", r.Three, "Ada: a summary ("+roots+")")
	j.equal("fixtures: sampling", r.Sample, "LLM response: a summary")
	j.equal("fixtures: roots", r.Roots, roots)
	asked := slices.Clone(r.Asked)
	slices.Sort(asked) // questions of one round have no order
	j.same("fixtures: questions", asked, []string{
		"form: " + tag + "Who are you?", "form: " + tag + "Step 1: what is your name?",
		"form: " + tag + "Step 2: what is your favorite color?", "form: " + tag + "What is your name?",
		"sampling", "sampling"})
	j.check("fixtures: error of a tool", r.Failed, r.Failed)
	j.equal("fixtures: resource", string(r.Read), `"This is the content of the static text resource."`)
	j.equal("fixtures: template", r.Template, `{"id":"7","templateTest":true,"data":"Data for ID: 7"}`)
	j.equal("fixtures: prompt", r.Prompt, "Prompt with arguments: arg1='a', arg2='b'")
	j.same("fixtures: completion", r.Completion, []string{"testing", "tested"})
}
