package mcp

// MatchURI returns the variables of a URI by a URI template; those of lists are []string. The error is that of a template
// which cannot be matched.
func MatchURI(template, uri string, lists ...string) (map[string]any, bool, error) {
	t, err := parseTemplate(template)
	if err != nil {
		return nil, false, err
	}
	isList := map[string]bool{}
	for _, name := range lists {
		isList[name] = true
	}
	m, err := t.matcher(isList)
	if err != nil {
		return nil, false, err
	}
	vars, ok := m.match(uri)
	return vars, ok, nil
}

// TemplateVariables returns the variables of a URI template, nil if it is none.
func TemplateVariables(template string) []string {
	t, err := parseTemplate(template)
	if err != nil {
		return nil
	}
	return t.variables()
}

// CheckURI is the check that every resource's URI passes.
var CheckURI = checkURI
