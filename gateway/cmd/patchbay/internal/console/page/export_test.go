package page

// ShowHidden is showHidden.
func ShowHidden(page string) string { return string(showHidden([]byte(page))) }
