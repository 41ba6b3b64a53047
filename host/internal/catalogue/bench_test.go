package catalogue_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/host/internal/catalogue"
)

func BenchmarkRouteHostileTemplates(b *testing.B) {
	var items []string
	for i := range catalogue.MaxTemplates {
		items = append(items, fmt.Sprintf(`{"name":"t","uriTemplate":"{+a}x{+b}y{+c}%d{?d,e,f*}"}`, i))
	}
	s := catalogue.Server{Name: "x"}
	s.Lists[catalogue.Templates] = catalogue.Parse(catalogue.Templates, page(catalogue.Templates, items...))
	c := catalogue.Merge([]catalogue.Server{s}, nil)
	uri := "file:///" + strings.Repeat("xya?b", 1600)
	c.Route(uri)
	b.ReportAllocs()
	for b.Loop() {
		c.Route(uri)
	}
}

func BenchmarkParse(b *testing.B) {
	var items []string
	for i := range 1000 {
		items = append(items, realTool(i))
	}
	p := page(catalogue.Tools, items...)
	b.SetBytes(int64(len(p)))
	b.ReportAllocs()
	for b.Loop() {
		catalogue.Parse(catalogue.Tools, p)
	}
}

func realTool(i int) string {
	return fmt.Sprintf(`{"name":"create_issue_%d","title":"Create an issue","description":"Creates an issue in a repository. `+
		`The issue has a title, a body, labels and assignees, and is assigned to the caller by default.",`+
		`"inputSchema":{"type":"object","properties":{"owner":{"type":"string","description":"the owner"},`+
		`"repo":{"type":"string","description":"the repository"},"title":{"type":"string"},"labels":{"type":"array",`+
		`"items":{"type":"string"}}},"required":["owner","repo","title"]},"annotations":{"readOnlyHint":false}}`, i)
}

func servers(n, tools int) (all []catalogue.Server) {
	for i := range n {
		var items []string
		for j := range tools {
			items = append(items, realTool(j))
		}
		s := catalogue.Server{Name: fmt.Sprintf("server-%d", i), ID: fmt.Sprintf("server-%d", i)}
		s.Lists[catalogue.Tools] = catalogue.Parse(catalogue.Tools, page(catalogue.Tools, items...))
		all = append(all, s)
	}
	return all
}

// BenchmarkMerge1000ToolsOver100Servers merges lists that other callers have merged before.
func BenchmarkMerge1000ToolsOver100Servers(b *testing.B) {
	all := servers(100, 10)
	b.ReportAllocs()
	for b.Loop() {
		catalogue.Merge(all, nil)
	}
}

func BenchmarkFirstMerge1000ToolsOver100Servers(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		all := servers(100, 10)
		b.StartTimer()
		catalogue.Merge(all, nil)
	}
}

func BenchmarkPages1000ToolsOver100Servers(b *testing.B) {
	c := catalogue.Merge(servers(100, 10), nil)
	b.ReportAllocs()
	for b.Loop() {
		for next := ""; ; {
			_, next, _ = c.Page(catalogue.Tools, next, 0)
			if next == "" {
				break
			}
		}
	}
}

func BenchmarkFirstPages1000ToolsOver100Servers(b *testing.B) {
	all := servers(100, 10)
	b.ReportAllocs()
	for b.Loop() {
		c := catalogue.Merge(all, nil)
		for next := ""; ; {
			_, next, _ = c.Page(catalogue.Tools, next, 0)
			if next == "" {
				break
			}
		}
	}
}

func BenchmarkSearch1000Tools(b *testing.B) {
	c := catalogue.Merge(servers(100, 10), nil)
	c.Search("issue", 10)
	b.ReportAllocs()
	for b.Loop() {
		c.Search("create an issue in a repository", 10)
	}
}

func BenchmarkIndex1000Tools(b *testing.B) {
	all := servers(100, 10)
	b.ReportAllocs()
	for b.Loop() {
		catalogue.Merge(all, nil).Search("issue", 10)
	}
}
