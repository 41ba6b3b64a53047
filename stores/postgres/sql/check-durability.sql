-- Returns the settings that decide what a crash loses.
SELECT current_setting('fsync'), current_setting('synchronous_commit'), current_setting('full_page_writes')
