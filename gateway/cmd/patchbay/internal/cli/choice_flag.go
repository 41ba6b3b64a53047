package cli

import (
	"fmt"
	"slices"
	"strings"
)

// A choiceFlag is a flag with a fixed set of values. It implements pflag.Value.
type choiceFlag struct {
	value   string
	allowed []string
}

func (f *choiceFlag) String() string { return f.value }
func (f *choiceFlag) Type() string   { return strings.Join(f.allowed, "|") }

// Set implements pflag.Value.
func (f *choiceFlag) Set(value string) error {
	if !slices.Contains(f.allowed, value) {
		return fmt.Errorf("want %s", oneOf(f.allowed))
	}
	f.value = value
	return nil
}
