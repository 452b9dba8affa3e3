# frozen_string_literal: true

# Fails if a library takes from Ruby's DLL what it means to take from Windows: the DLL exports `Sleep`, `recv`, `select` and
# more under the names of the system's own functions, and Ruby's versions need the GVL (include/ruby/win32.h).
#
#   ruby tests/windows/imports.rb LIBRARY RUBY_DLL TOOLCHAIN

library, ruby, toolchain = ARGV
SYSTEM = %w[kernel32 ws2_32 ucrt ntdll mingwex].freeze

run = lambda do |tool, *arguments|
  IO.popen(["#{toolchain}-#{tool}", *arguments], err: File::NULL, &:read)
end

# "DLL Name: x.dll", a header, then a line for each name, to the next empty line.
imported = run.call("objdump", "-p", library).split("DLL Name: ").drop(1).to_h do |part|
  name, _header, *lines = part.split(/\r?\n/)
  [name.downcase, lines.take_while { |line| !line.strip.empty? }.map { |line| line.split.last }]
end
taken = imported.fetch(File.basename(ruby).downcase) { abort "#{library} imports nothing from #{ruby}: is this check blind?" }
systems = SYSTEM.flat_map do |name|
  path = run.call("gcc", "-print-file-name=lib#{name}.a").chomp
  run.call("nm", "-g", "--defined-only", path).lines.filter_map { |line| line[/ T (\S+)$/, 1] }
end
abort "no names of Windows found: is this check blind?" unless systems.include?("Sleep")

wrong = taken & systems
abort "#{library} takes from #{File.basename(ruby)} what Windows should give: #{wrong.sort.join(" ")}" unless wrong.empty?
puts "imports of #{library}: #{taken.size} names of Ruby, none that Windows has, too"
