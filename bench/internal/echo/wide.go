package echo

import "fmt"

// WideTool returns the description and the input schema of the i-th tool of a list in which each tool
// has a schema of its own. A tool is about 1 KB long, as the tools of large servers are.
func WideTool(i int) (description, schema string) {
	description = fmt.Sprintf("%s number %d. Use it when the user asks for the records of project %d by their state, "+
		"and not for the members of a team or the settings of an organization, for which other tools exist.",
		ToolDescription, i, i)
	schema = `{"type":"object","properties":{"message":{"type":"string","description":"the text to return"}`
	for n, property := range []string{"project", "state", "labels", "since", "limit"} {
		schema += fmt.Sprintf(`,%q:{"type":"string","description":"the %s of the records that tool %d returns, `+
			`at most %d characters; leave it out for the default of the project"}`, property, property, i, 100+n)
	}
	return description, schema + `},"required":["message"],"additionalProperties":false}`
}
