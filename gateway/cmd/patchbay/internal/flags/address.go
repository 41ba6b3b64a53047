package flags

import "github.com/spf13/pflag"

// An address is the value of a flag that may be given without a value, as a flag of type bool may.
type address struct {
	value    *string
	fallback string
}

// Address adds a flag for an address. The flag without a value selects the address fallback.
func Address(set *pflag.FlagSet, value *string, name, fallback, usage string) {
	set.VarPF(&address{value, fallback}, name, "", usage).NoOptDefVal = "true"
}

// String returns the address.
func (a *address) String() string { return *a.value }

// Type returns the type for which the help shows no default in the place of the value.
func (a *address) Type() string { return "bool" }

// Set sets the address.
func (a *address) Set(text string) error {
	if *a.value = text; text == "true" {
		*a.value = a.fallback
	}
	return nil
}
