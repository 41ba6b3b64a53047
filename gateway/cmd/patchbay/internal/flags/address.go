package flags

// An Address is the value of a flag that may be given without an address, as a flag of type bool may. The
// NoOptDefVal of the flag must be "true".
type Address struct {
	Value   *string
	Default string // for the flag without an address
}

// String returns the address.
func (a *Address) String() string { return *a.Value }

// Type returns the type for which the help shows no default in the place of the value.
func (a *Address) Type() string { return "bool" }

// Set sets the address.
func (a *Address) Set(text string) error {
	if *a.Value = text; text == "true" {
		*a.Value = a.Default
	}
	return nil
}
