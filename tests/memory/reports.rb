# frozen_string_literal: true

require "open3"

module Memory
  # The extension's own code on a stack: the only library that is judged.
  OURS = %r{/reactor\.so\b}

  # What the tools have written, as problems: lines of text.
  module Reports
    module_function

    # AddressSanitizer and its LeakSanitizer. At the end of a process everything that only Ruby's heap refers to is reported, so
    # a leak is ours if the function that called malloc is.
    def asan(paths)
      paths.flat_map do |path|
        text = File.read(path).scrub
        errors = text.split(/^(?=={65}$)/).grep(/ERROR: AddressSanitizer:/)
        leaks = text.scan(/^(?:Direct|Indirect) leak of .*\n(?:    #.*\n)+/).select { |leak| leak[/^    #1 .*/]&.match?(OURS) }
        [*errors, *leaks, *text.scan(/^.*LeakSanitizer has encountered a fatal error.*/)]
      end
    end

    # Memcheck, as XML. An error is ours if the innermost function is, that belongs neither to valgrind nor to the C library. If
    # the error is that a value was never written, this is asked of the function that has allocated it: to valgrind, references
    # that the VM has found conservatively were never written, and so is all that was computed from them.
    def valgrind(paths)
      paths.flat_map do |path|
        File.read(path).scrub.scan(%r{<error>.*?</error>}m).select { |error| ours?(error) }.map { |error| plain(error) }
      end
    end

    def ours?(error)
      stacks = error.scan(%r{<stack>.*?</stack>}m)
      stack = error.match?(/<kind>(?:Uninit|SyscallParam)/) && error.include?("was created by") ? stacks.last : stacks.first
      frame = stack.to_s.scan(%r{<frame>.*?</frame>}m).find { |one| !one.match?(%r{<obj>[^<]*(?:valgrind/|/libc\.so|/libpthread|/ld-linux)}) }
      frame.to_s.match?(%r{<obj>[^<]*#{OURS.source}})
    end

    def plain(error)
      stacks = error.scan(%r{<(?:what|text|auxwhat)>(.*?)</|<frame>(.*?)</frame>}m).map do |what, frame|
        what || "    #{frame[%r{<fn>(.*?)</fn>}, 1] || frame[%r{<obj>(.*?)</obj>}, 1]} (#{frame[%r{<file>(.*?)</file>}, 1]}:#{frame[%r{<line>(.*?)</line>}, 1]})"
      end
      stacks.join("\n").gsub("&lt;", "<").gsub("&gt;", ">").gsub("&amp;", "&")
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
