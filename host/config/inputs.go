package config

import (
	"errors"
	"fmt"
	"strings"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
)

// An Input is a value that the user is asked for, such as a token: an element of the member inputs
// of a configuration file. Source: VS Code, MCP configuration reference.
type Input struct {
	// ID is the name in ${input:ID}.
	ID string
	// Description is the question for the user.
	Description string
	// Default is the value of an empty answer.
	Default string
	// Password is set if the answer must not be shown.
	Password bool
	// Options are the only valid answers; nil for any text.
	Options []string
}

// parseInputs returns the inputs that a server refers to.
func parseInputs(inputs []byte, s *Server) (found []Input, err error) {
	all := strings.Join(s.texts(), "\n")
	if inputs == nil || !strings.Contains(all, "${input:") {
		return nil, nil
	}
	if jsonscan.Kind(inputs) != '[' {
		return nil, errors.New("must be an array of objects")
	}
	seen := map[string]bool{}
	for element := range jsonscan.Elements(inputs) {
		in, err := parseInput(element)
		if err != nil {
			return nil, fmt.Errorf("element %d: %w", len(seen), err)
		}
		if seen[in.ID] {
			return nil, fmt.Errorf("duplicate id %.64q", in.ID)
		}
		seen[in.ID] = true
		if strings.Contains(all, "${input:"+in.ID+"}") {
			found = append(found, *in)
		}
	}
	return found, nil
}

func parseInput(raw []byte) (*Input, error) {
	if jsonscan.Kind(raw) != '{' {
		return nil, errors.New("must be an object")
	}
	in, kind := &Input{}, "promptString"
	for key, value := range jsonscan.Members(raw) {
		var err error
		switch string(key) {
		case "id":
			in.ID, err = text(value)
		case "type":
			kind, err = text(value)
		case "description":
			in.Description, err = text(value)
		case "default":
			in.Default, err = text(value)
		case "password":
			in.Password = jsonscan.Kind(value) == 't'
		case "options":
			in.Options, err = list(value)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", key, err)
		}
	}
	switch {
	case !inputID().MatchString(in.ID):
		return nil, fmt.Errorf("invalid id %.64q: want letters, digits and any of ._-", in.ID)
	case kind != "promptString" && kind != "pickString":
		return nil, fmt.Errorf("invalid type %.64q of input %.64q: want promptString or pickString", kind, in.ID)
	case kind == "pickString" && len(in.Options) == 0:
		return nil, fmt.Errorf("input %.64q: missing options", in.ID)
	case kind == "promptString":
		in.Options = nil
	}
	return in, nil
}
