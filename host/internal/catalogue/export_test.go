package catalogue

import "encoding/json"

// Definition returns the definition of an item.
func (i *Item) Definition() json.RawMessage { return i.AppendDefinition(nil) }
