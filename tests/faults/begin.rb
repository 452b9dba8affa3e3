# frozen_string_literal: true

# Required before a file of the suite, whose calls then count from its beginning.
require_relative "marks"
Marks.begin
