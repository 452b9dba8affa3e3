# frozen_string_literal: true

module Wild
  # A disk that others use may hold an fsync for longer than any limit. No signal ends it, and it is no fault of the process.
  module Disk
    module_function

    # @param pid [Integer, String] "self": this process
    # @return [Boolean] whether a thread of the process is in an uninterruptible wait of the kernel
    def busy?(pid)
      Dir.glob("/proc/#{pid}/task/*/stat").any? { |path| File.read(path)[/\) (\w)/, 1] == "D" }
    rescue SystemCallError
      false # it has ended
    end
  end
end
