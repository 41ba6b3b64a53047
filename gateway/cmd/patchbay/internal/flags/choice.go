package flags

import (
	"fmt"
	"slices"
	"strings"
)

// OneOf returns "one of …" for several values, or the only value.
func OneOf(all []string) string {
	if len(all) == 1 {
		return all[0]
	}
	return "one of " + strings.Join(all, ", ")
}

// A Choice is a flag with a fixed set of values. It implements pflag.Value.
type Choice struct {
	Value   string
	Allowed []string
}

// String returns the value.
func (f *Choice) String() string { return f.Value }

// Type returns the allowed values.
func (f *Choice) Type() string { return strings.Join(f.Allowed, "|") }

// Set implements pflag.Value.
func (f *Choice) Set(value string) error {
	if !slices.Contains(f.Allowed, value) {
		return fmt.Errorf("want %s", OneOf(f.Allowed))
	}
	f.Value = value
	return nil
}
