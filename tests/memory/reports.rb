# frozen_string_literal: true

require "open3"

module Memory
  # The extension's own code on a stack: the only library that is judged.
  OURS = %r{/reactor\.so\b}

  # What AddressSanitizer and its LeakSanitizer have written, as problems: lines of text.
  module Reports
    module_function

    # At the end of a process everything that only Ruby's heap refers to is reported, so a leak is ours if the function that
    # called malloc is.
    def problems(paths)
      paths.flat_map do |path|
        text = File.read(path).scrub
        errors = text.split(/^(?=={65}$)/).grep(/ERROR: AddressSanitizer:/)
        leaks = text.scan(/^(?:Direct|Indirect) leak of .*\n(?:    #.*\n)+/).select { |leak| leak[/^    #1 .*/]&.match?(OURS) }
        [*errors, *leaks, *text.scan(/^.*LeakSanitizer has encountered a fatal error.*/)]
      end
    end

    # Names and lines for the addresses in the extension's library.
    def named(problem, library)
      problem.gsub(/^(    #\d+ 0x\h+)  \(#{Regexp.escape(library)}\+(0x\h+)\).*/) do
        output, status = Open3.capture2("addr2line", "-Cfpse", library, $2)
        status.success? ? "#{$1} #{output.chomp}" : $&
      end
    rescue Errno::ENOENT
      problem
    end
  end
end
