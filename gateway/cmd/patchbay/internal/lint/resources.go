package lint

import (
	"mime"
	"strconv"
	"strings"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway/internal/rawjson"
	"github.com/patchbay-mcp/patchbay/uritemplate"
)

func (c *checker) checkPrompts() {
	names := collector{}
	for i, raw := range c.server.Prompts {
		p := newItem("prompt", i, raw)
		c.checkTexts(p)
		if names.seen(p.name, p.where) != "" {
			c.add("name-duplicate", p.where, "two prompts have this name")
		}
		arguments, _ := rawjson.Get(raw, "arguments")
		seen := collector{}
		var undescribed []string
		for argument := range rawjson.Elements(arguments) {
			name := rawjson.GetString(argument, "name")
			switch {
			case name == "":
				c.add("prompt-argument-name", p.where, "an argument has no name")
			case seen.seen(name, p.where) != "":
				c.add("prompt-argument-name", p.where, "two arguments have the name %q", shown(name))
			case rawjson.GetString(argument, "description") == "":
				undescribed = append(undescribed, name)
			}
		}
		if len(undescribed) > 0 {
			c.add("prompt-argument-description", p.where, "no description: %s", list(undescribed))
		}
	}
}

func (c *checker) checkResources() {
	uris := collector{}
	for i, raw := range c.server.Resources {
		r := newItem("resource", i, raw)
		uri := rawjson.GetString(raw, "uri")
		if uri != "" {
			r.where = "resource " + shown(uri)
		}
		c.checkTexts(r)
		if err := uritemplate.CheckURI(uri); err != nil {
			c.add("uri-invalid", r.where, "%s", shown(err.Error()))
		}
		if uris.seen(uri, r.where) != "" {
			c.add("uri-duplicate", r.where, "two resources have this URI")
		}
		if rawjson.GetString(raw, "mimeType") == "" {
			c.add("mime-type-missing", r.where, "no mimeType")
		}
		if size, ok := rawjson.Get(raw, "size"); ok {
			if n, err := strconv.ParseFloat(string(size), 64); err != nil || n < 0 {
				c.add("size-invalid", r.where, "size is %s", shown(string(size)))
			}
		}
		c.checkContent(r)
	}
}

func (c *checker) checkTemplates() {
	patterns := collector{}
	for i, raw := range c.server.Templates {
		t := newItem("template", i, raw)
		text := rawjson.GetString(raw, "uriTemplate")
		if text != "" {
			t.where = "template " + shown(text)
		}
		c.checkTexts(t)
		if patterns.seen(text, t.where) != "" {
			c.add("uri-duplicate", t.where, "two templates have this pattern")
		}
		c.checkTemplate(t, text)
		c.checkContent(t)
	}
}

func (c *checker) checkTemplate(t *item, text string) {
	template, err := uritemplate.Parse(text)
	switch {
	case text == "":
		c.add("template-invalid", t.where, "missing uriTemplate")
	case err != nil:
		c.add("template-invalid", t.where, "%s", shown(err.Error()))
	case len(template.Variables()) == 0:
		c.add("template-constant", t.where, "no variable")
	case !hasScheme(template.LiteralPrefix()) && !strings.HasPrefix(text, "{"): // a variable may contain the scheme
		c.add("template-invalid", t.where, "no scheme")
	}
}

// hasScheme reports whether a text begins as a URI does.
func hasScheme(text string) bool {
	scheme, _, found := strings.Cut(text, ":")
	return found && uritemplate.CheckURI(scheme+":x") == nil
}

// checkContent checks the members that resources and templates share.
func (c *checker) checkContent(it *item) {
	if text := rawjson.GetString(it.raw, "mimeType"); text != "" {
		if kind, _, err := mime.ParseMediaType(text); err != nil || !strings.Contains(kind, "/") {
			c.add("mime-type-invalid", it.where, "mimeType %q", shown(text))
		}
	}
	annotations, _ := rawjson.Get(it.raw, "annotations")
	audience, _ := rawjson.Get(annotations, "audience")
	for value := range rawjson.Elements(audience) {
		if role, _ := rawjson.Unquote(value); role != "user" && role != "assistant" {
			c.add("resource-annotations", it.where, "audience has %s", shown(string(value)))
		}
	}
	if priority, ok := rawjson.Get(annotations, "priority"); ok {
		if n, err := strconv.ParseFloat(string(priority), 64); err != nil || n < 0 || n > 1 {
			c.add("resource-annotations", it.where, "priority is %s", shown(string(priority)))
		}
	}
	if modified, ok := rawjson.Get(annotations, "lastModified"); ok {
		text, _ := rawjson.Unquote(modified)
		if !isTime(text) {
			c.add("resource-annotations", it.where, "lastModified is %s", shown(string(modified)))
		}
	}
}

// isTime reports whether a text is an ISO 8601 time in a common form.
func isTime(text string) bool {
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04:05", time.DateOnly, "2006-01-02T15:04Z07:00"} {
		if _, err := time.Parse(layout, text); err == nil {
			return true
		}
	}
	return false
}
